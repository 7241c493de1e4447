"""The look at features during training: votes by hand, rows of every class, and a task that is left as it was."""

import numpy as np
import pytest
import torch
from test_training import bow_task, small_images, words
from training_tasks import assert_same_weights, without_times

from bownet.config import Optimiser, Proxy
from bownet.images import scenes
from bownet.proxy import look_at, nearest_neighbour_accuracy, proxy_rows
from bownet.training import Hooks, train


def test_votes_by_hand() -> None:
    """Asked at 0°: neighbours at 0° (class 1), 50° and 60° (class 0). One: 1. Three: 0.64 + 0.5 > 1 makes it 0."""
    angles = torch.deg2rad(torch.tensor([0.0, 50.0, 60.0, 180.0]))
    known = torch.stack([angles.cos(), angles.sin()], 1) * torch.tensor([[1.0], [5.0], [0.1], [2.0]])
    labels = torch.tensor([1, 0, 0, 2])
    asking = torch.tensor([[3.0, 0.0]])
    for neighbours, winner in [(1, 1), (2, 1), (3, 0), (99, 0)]:
        for truth in range(3):
            percent = nearest_neighbour_accuracy(known, labels, asking, torch.tensor([truth]), neighbours)
            assert percent == 100 * (truth == winner)


def test_equals_a_plain_loop() -> None:
    g = torch.Generator().manual_seed(0)
    known, asking = torch.rand(30, 5, generator=g), torch.rand(20, 5, generator=g)
    labels, truth = torch.randint(4, (30,), generator=g), torch.randint(4, (20,), generator=g)
    right = 0
    for q, t in zip(asking, truth, strict=True):
        cosines = sorted(
            ((torch.cosine_similarity(q, f, dim=0).item(), int(c)) for f, c in zip(known, labels, strict=True))
        )
        votes = [sum(s for s, c in cosines[-7:] if c == k) for k in range(4)]
        right += votes.index(max(votes)) == t
    assert nearest_neighbour_accuracy(known, labels, asking, truth, 7) == pytest.approx(100 * right / 20)


def test_rows_are_even_over_the_classes() -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 3])
    rows = proxy_rows(labels, 22)
    assert len(set(rows)) == 22
    assert np.bincount(labels[rows]).tolist() == [10, 9, 3]
    assert np.bincount(labels[rows][::2]).min() >= 1  # every class has neighbours and asks
    assert np.bincount(labels[rows][1::2]).min() >= 1
    assert rows[:6].tolist() == [0, 1, 50, 51, 80, 81]
    assert len(proxy_rows(labels, 1000)) == 83


def test_training_goes_on_as_if_nobody_looked() -> None:
    labels = scenes.labels(48, scenes.BASE)
    look = look_at(Proxy(every=2, neighbours=3), small_images(48).images_NHWC, labels)
    config = Optimiser(epochs=4, iterations_per_epoch=None, batch=16, drops=())
    watched, alone = bow_task(), bow_task()
    history = train(watched, small_images(48), words(48), config, seed=3, hooks=Hooks(look=look))
    expected = train(alone, small_images(48), words(48), config, seed=3)
    assert ["knn" in record for record in history] == [False, True, False, True]
    assert all(0 <= record["knn"] <= 100 for record in history[1::2])
    assert [record.pop("knn", None) for record in history][1] == look(bow_task_after(2), 2)["knn"]
    assert without_times(history) == without_times(expected)
    assert_same_weights(watched, alone)


def bow_task_after(epochs: int) -> torch.nn.Module:
    task = bow_task()
    config = Optimiser(epochs=epochs, iterations_per_epoch=None, batch=16, drops=())
    train(task, small_images(48), words(48), config, seed=3)
    return task


def test_a_part_in_eval_mode_stays_there() -> None:
    task = bow_task().train()
    task.backbone.eval()
    before = {name: value.clone() for name, value in task.state_dict().items()}
    look_at(Proxy(every=1), small_images(24).images_NHWC, scenes.labels(24, scenes.BASE))(task, 1)
    assert task.training
    assert not any(module.training for module in task.backbone.modules())
    assert all(torch.equal(value, task.state_dict()[name]) for name, value in before.items())
