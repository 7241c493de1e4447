"""A run that is killed at any step and continued from its last checkpoint is the run that nothing disturbed."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn
from training_tasks import Regression, SelfTaught, assert_same_weights, numbers, pixels, without_times

from bownet.config import Optimiser
from bownet.training import Diverged, Hooks, InMemory, Record, Shard, how_far, learner, loop, train
from bownet.training.checkpoint import Running, unpack
from bownet.training.loop import Pace, _own_sums

CONFIG = Optimiser(epochs=3, iterations_per_epoch=None, batch=11, drops=(2,), ema=0.9, clip=0.5, accumulate=2)


class Killed(Exception):
    pass


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints within an epoch after each step but the last."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)


def checkpoint_at(task: nn.Module, where: tuple[int, int], config: Optimiser, images: InMemory, targets: Any) -> bytes:
    """Train until `where` (complete epochs, steps) and die in the moment that the checkpoint is written."""
    kept: list[bytes] = []

    def save(state: bytes) -> None:
        if how_far(state) == where:
            kept.append(state)
            raise Killed

    with pytest.raises(Killed):
        train(task, images, targets, config, seed=3, hooks=Hooks(save=save, save_within=save))
    return kept[0]


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("where", [(0, 1), (1, 2), (1, 3), (2, 0), (2, 1), (3, 0)])
def test_killed_anywhere_it_ends_the_same(where: tuple[int, int]) -> None:
    undisturbed = Regression()
    expected = train(undisturbed, pixels(), numbers(), CONFIG, seed=3)
    state = checkpoint_at(Regression(), where, CONFIG, pixels(), numbers())
    resumed = Regression(seed=99)  # another start: everything must come from the checkpoint
    history = train(resumed, pixels(), numbers(), CONFIG, seed=3, resume=state)
    assert_same_weights(resumed, undisturbed)
    assert without_times(history) == without_times(expected)
    assert len(history) == 3
    assert all(h["images_per_second"] > 0 for h in history)


@pytest.mark.usefixtures("every_step")
def test_the_scale_of_gradients_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's float16, on a CPU: steps since the scale was last changed are counted through."""
    monkeypatch.setattr(learner, "low_precision", lambda config, device: torch.float16)
    undisturbed, resumed = Regression(), Regression(seed=99)
    last: list[bytes] = []
    expected = train(undisturbed, pixels(), numbers(), CONFIG, seed=3, hooks=Hooks(save=last.append))
    state = checkpoint_at(Regression(), (1, 2), CONFIG, pixels(), numbers())
    history = train(resumed, pixels(), numbers(), CONFIG, seed=3, resume=state, hooks=Hooks(save=last.append))
    assert_same_weights(resumed, undisturbed)
    assert without_times(history) == without_times(expected)
    first, second = unpack(last[2]).scaler, unpack(last[-1]).scaler
    assert first == second
    assert 6 < first["_growth_tracker"] <= 12  # of 3 epochs of 4 steps, those since the last overflow


@pytest.mark.usefixtures("every_step")
def test_a_network_with_batch_norm_and_chance() -> None:
    from test_training import bow_task, small_images, words

    images, targets = small_images(48), words(48)
    config = Optimiser(epochs=3, iterations_per_epoch=None, batch=16, drops=(2,), ema=0.5)
    undisturbed, resumed = bow_task(), bow_task(seed=99)
    expected = train(undisturbed, images, targets, config, seed=3)
    state = checkpoint_at(bow_task(), (1, 2), config, images, targets)
    history = train(resumed, images, targets, config, seed=3, resume=state)
    assert_same_weights(resumed, undisturbed)
    assert without_times(history) == without_times(expected)


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize(("where", "renewed_at"), [((0, 2), (2,)), ((1, 0), (2,)), ((1, 2), (2,)), ((2, 0), (2,))])
def test_targets_that_a_task_renews(where: tuple[int, int], renewed_at: tuple[int, ...]) -> None:
    """They come from the checkpoint in an epoch that has begun and in one that keeps them."""
    undisturbed = SelfTaught()
    expected = train(undisturbed, pixels(), None, CONFIG, seed=3)
    assert undisturbed.renewed_at == (0, 2)
    state = checkpoint_at(SelfTaught(), where, CONFIG, pixels(), None)
    kept = unpack(state).targets
    assert kept is not None
    assert sorted(kept.unique().tolist()) == [0, 1, 2]
    resumed = SelfTaught(seed=99)
    history = train(resumed, pixels(), None, CONFIG, seed=3, resume=state)
    assert resumed.renewed_at == renewed_at
    assert_same_weights(resumed, undisturbed)
    assert without_times(history) == without_times(expected)


def test_batches_before_the_first_are_not_read() -> None:
    config = Optimiser(epochs=3, iterations_per_epoch=7, batch=8, drops=())
    images = InMemory(np.arange(50, dtype=np.uint8)[:, None, None, None])
    for first in (0, 3, 7):
        some, everything = (list(images.epoch(config, 4, 1, Shard(1, 2), f)) for f in (first, 0))
        assert [x.tolist() for x in some] == [x.tolist() for x in everything[first:]]
    assert torch.cat(list(images)).flatten().tolist() == list(range(50))


def test_a_checkpoint_of_three_fields_still_continues() -> None:
    """As it was written before there were averages, scales and epochs in the middle."""
    import io

    config = Optimiser(epochs=2, iterations_per_epoch=None, batch=10, drops=())
    undisturbed, saved = Regression(), list[bytes]()
    expected = train(undisturbed, pixels(), numbers(), config, seed=3, hooks=Hooks(save=saved.append))
    whole = torch.load(io.BytesIO(saved[0]), weights_only=True)
    old = io.BytesIO()
    torch.save({name: whole[name] for name in ("task", "optimiser", "history")}, old)
    resumed = Regression(seed=99)
    history = train(resumed, pixels(), numbers(), config, seed=3, resume=old.getvalue())
    assert_same_weights(resumed, undisturbed)
    assert without_times(history) == without_times(expected)


def test_sums_for_another_number_of_workers_keep_their_mean() -> None:
    sums_WM = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    assert _own_sums(sums_WM, Shard(1, 2)).tolist() == [3, 30]
    for world in (1, 3):
        own = [_own_sums(sums_WM, Shard(rank, world)) for rank in range(world)]
        assert (sum(own) / world).tolist() == [2, 20]  # type: ignore[union-attr]


def test_looks_come_about_once_a_second() -> None:
    """Steps of 10 ms: after a doubling start every 100th is looked at."""
    pace, looked = Pace(Running()), []
    for i in range(1000):
        if pace.is_due(i):
            looked.append(i)
            pace.plan(i, 0.01 * (i + 1))
    assert looked[:4] == [0, 2, 6, 14]
    assert all(95 <= b - a <= 101 for a, b in itertools.pairwise(looked[7:]))
    assert 14 <= len(looked) <= 18


class Grows(nn.Module):
    """Its loss is multiplied by a factor in every step, whatever the optimiser does."""

    def __init__(self, factor: float, first: float = 1.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))
        self.register_buffer("size", torch.tensor(first))
        self.factor = factor

    def forward(self, x: Tensor, y: None, g: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        assert isinstance(self.size, Tensor)
        self.size.mul_(self.factor)
        return self.size * (1 + 0 * self.w.sum()), {}


@pytest.mark.usefixtures("every_step")
def test_a_loss_that_is_no_number_ends_the_run_within_the_epoch() -> None:
    """1e30 · 1000 · 1000 · ... leaves float32 in the third step of 40."""
    config = Optimiser(epochs=3, iterations_per_epoch=40, batch=4, drops=())
    steps: list[Record] = []
    with pytest.raises(Diverged, match=r"loss=inf, .* in epoch 1, step 3 of 40, at lr=0.1") as raised:
        train(Grows(1000, 1e30), pixels(), None, config, seed=0, hooks=Hooks(on_step=steps.append))
    assert raised.value.good == 0


def test_a_loss_that_explodes_ends_the_run_and_names_the_last_good_epoch() -> None:
    """1.02 per step: after 60 steps a factor of 3.3, so that the mean of the third epoch of 30 steps is above 3."""
    config = Optimiser(epochs=9, iterations_per_epoch=30, batch=4, drops=())
    saved: list[bytes] = []
    message = r"epoch 3, step 30 of 30, at lr=0.1: it diverged.*the last good checkpoint is the end of epoch 2$"
    with pytest.raises(Diverged, match=message) as raised:
        train(Grows(1.02), pixels(), None, config, seed=0, hooks=Hooks(save=saved.append))
    assert raised.value.good == 2
    assert how_far(saved[-1]) == (2, 0)
