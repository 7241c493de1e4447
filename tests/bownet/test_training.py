"""The training loop: epochs that show every image once, schedules, and exact continuation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bownet.config import Net, Optimiser, Student
from bownet.images import scenes
from bownet.nets.build import build_backbone
from bownet.tasks.bow import BowTask
from bownet.tasks.rotation import RotationTask
from bownet.training import Hooks, InMemory, Record, Shard, batches, learning_rate, train

PASSES = Optimiser(epochs=3, iterations_per_epoch=None, batch=8, drops=())


@pytest.mark.parametrize("images", [8, 9, 100, 129])
def test_a_pass_shows_every_image_once_in_batches_of_nearly_one_size(images: int) -> None:
    rows = list(batches(images, PASSES, seed=1, epoch=0))
    assert sorted(np.concatenate(rows)) == list(range(images))
    sizes = {len(r) for r in rows}
    assert max(sizes) <= 8
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("iterations", [None, 7])
def test_workers_together_see_each_batch_once(world: int, iterations: int | None) -> None:
    """Images that carry their own number: the parts of all workers are the batch, whatever their number."""
    config = Optimiser(epochs=3, iterations_per_epoch=iterations, batch=8, drops=())
    images = InMemory(np.arange(50, dtype=np.uint8)[:, None, None, None])
    for epoch in range(2):
        parts = [images.epoch(config, 4, epoch, Shard(rank, world)) for rank in range(world)]
        for rows, *of_workers in zip(batches(50, config, 4, epoch), *parts, strict=True):
            assert torch.cat(of_workers).flatten().tolist() == rows.tolist()


def test_passes_differ_by_epoch_and_seed_only() -> None:
    def first(seed: int, epoch: int) -> list[int]:
        return next(iter(batches(100, PASSES, seed, epoch))).tolist()

    assert first(1, 0) == first(1, 0)
    assert len({tuple(first(s, e)) for s in (1, 2) for e in (0, 1)}) == 4


def test_counted_iterations_go_on_through_the_passes() -> None:
    """Epochs of 5 batches of 8 over 20 images: two passes each, every image exactly twice."""
    config = Optimiser(epochs=4, iterations_per_epoch=5, batch=8, drops=())
    for epoch in range(3):
        rows = np.concatenate(list(batches(20, config, seed=0, epoch=epoch)))
        assert len(rows) == 40
        assert (np.bincount(rows, minlength=20) == 2).all()
    small = Optimiser(epochs=4, iterations_per_epoch=1, batch=50, drops=())
    assert len(next(iter(batches(20, small, 0, 1)))) == 50  # a batch may span several passes


def test_learning_rate_by_hand() -> None:
    step = Optimiser(epochs=30, drops=(12, 24))
    assert [learning_rate(step, e) for e in (0, 11.99, 12, 24)] == pytest.approx([0.1, 0.1, 0.01, 0.001])
    cosine = Optimiser(epochs=10, schedule="cosine", warmup_epochs=2, lr=1.0)
    assert learning_rate(cosine, 6) == pytest.approx(0.5)
    assert learning_rate(cosine, 1) == pytest.approx(0.5, abs=1e-3)
    assert learning_rate(cosine, 10) == pytest.approx(0, abs=1e-12)


def small_images(n: int) -> InMemory:
    return InMemory(scenes.draw_labelled(scenes.labels(n, scenes.BASE), 16, seed=0))


def bow_task(seed: int = 0, cutmix: bool = True) -> BowTask:
    torch.manual_seed(seed)
    return BowTask(build_backbone(Net(arch="wrn-10-1"), seed), 16, Student(arch="wrn-10-1", cutmix=cutmix))


def words(n: int) -> NDArray[np.uint16]:
    return np.random.default_rng(5).integers(16, size=(n, 1, 4, 4)).astype(np.uint16)


class Killed(Exception):
    pass


def test_continues_bit_for_bit() -> None:
    """Stop after two of three epochs, start anew from the checkpoint: same weights, same history as undisturbed."""
    images, targets = small_images(48), words(48)
    config = Optimiser(epochs=3, iterations_per_epoch=None, batch=16, drops=(2,))
    undisturbed = bow_task()
    expected = train(undisturbed, images, targets, config, seed=3)

    saved: list[bytes] = []

    def save_then_die(state: bytes) -> None:
        saved.append(state)
        if len(saved) == 2:
            raise Killed

    with pytest.raises(Killed):
        train(bow_task(), images, targets, config, seed=3, hooks=Hooks(save=save_then_die))
    resumed = bow_task(seed=99)  # another start: everything must come from the checkpoint
    history = train(resumed, images, targets, config, seed=3, resume=saved[-1])
    for name, value in undisturbed.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert [h["loss"] for h in history] == [h["loss"] for h in expected]


def test_defaults_are_the_plain_loop_bit_for_bit() -> None:
    """Forward, backward, SGD, and nothing else: whatever the loop does besides must not move a weight."""
    images, targets = small_images(50), words(50)
    config = Optimiser(epochs=2, iterations_per_epoch=None, batch=16, drops=(1,))
    task = bow_task()
    history = train(task, images, targets, config, seed=3)

    plain = bow_task().train()
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    losses, step = [], 0
    for epoch, lr in enumerate((0.1, 0.1 * 0.1)):
        sgd.param_groups[0]["lr"] = lr
        total = torch.zeros(())
        for rows in batches(50, config, 3, epoch):
            state = np.random.SeedSequence([3, step, 0]).generate_state(1, np.uint64)[0]
            generator = torch.Generator().manual_seed(int(state >> np.uint64(1)))
            y = torch.from_numpy(targets[rows].astype(np.int32))
            loss, _ = plain(torch.from_numpy(images.images_NHWC[rows]), y, generator)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            total += loss.detach()
            step += 1
        losses.append((total / 4).item())
    assert [h["loss"] for h in history] == losses
    assert [h["lr"] for h in history] == [0.1, 0.1 * 0.1]
    for name, value in plain.state_dict().items():
        assert torch.equal(value, task.state_dict()[name]), name


def test_another_seed_is_another_run() -> None:
    images, targets = small_images(48), words(48)
    config = Optimiser(epochs=1, iterations_per_epoch=None, batch=16, drops=())
    losses = [train(bow_task(), images, targets, config, seed=s)[0]["loss"] for s in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_rotation_is_learned() -> None:
    """The loss falls well under its start, ln 4, within seconds."""
    images = InMemory(scenes.draw_labelled(scenes.labels(128, scenes.BASE), 24, seed=0))
    torch.manual_seed(0)
    task = RotationTask(build_backbone(Net(arch="wrn-10-1"), 0), head_layers=1, pad=2)
    config = Optimiser(epochs=12, iterations_per_epoch=None, batch=16, lr=0.1, schedule="cosine")
    history = train(task, images, None, config, seed=0)
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert history[-1]["accuracy"] > 0.6


def test_bags_of_words_are_learned() -> None:
    """Words that depend on the picture, its brightness in 16 steps: the loss falls well under ln 16."""
    images = small_images(96)
    bright = images.images_NHWC.mean((1, 2, 3)).argsort().argsort() * 16 // 96
    config = Optimiser(epochs=12, iterations_per_epoch=None, batch=16, drops=())
    targets = np.broadcast_to(bright[:, None, None, None], (96, 1, 4, 4))
    history = train(bow_task(cutmix=False), images, targets, config, seed=0)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]


def test_divergence_stops_the_run_with_the_epoch_and_the_rate() -> None:
    config = Optimiser(epochs=3, iterations_per_epoch=None, batch=16, lr=100, momentum=0.99, drops=())

    class Explodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor, y: None, g: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
            return (self.w**4).sum(), {}

    message = r"loss=inf, .* in epoch 1, step \d of 10, at lr=100: it diverged, use a smaller lr.*no good"
    with pytest.raises(ValueError, match=message):
        train(Explodes(), small_images(160), None, config, seed=0)


def test_reports_every_epoch_once() -> None:
    told: list[Record] = []
    config = Optimiser(epochs=2, iterations_per_epoch=None, batch=16, drops=())
    train(bow_task(), small_images(32), words(32), config, seed=0, hooks=Hooks(on_epoch=told.append))
    assert [r["epoch"] for r in told] == [1, 2]
    assert all({"loss", "lr", "images_per_second", "floor", "gamma"} <= r.keys() for r in told)
    assert all(r["loss"] > r["floor"] for r in told)


def test_an_input_that_gives_other_images_than_are_due_is_refused() -> None:
    class Halved(InMemory):
        def epoch(self, *arguments: Any, **named: Any) -> Iterator[Tensor]:
            return (part[: len(part) // 2] for part in super().epoch(*arguments, **named))

    images = Halved(np.zeros((16, 16, 16, 3), np.uint8))
    task = RotationTask(build_backbone(Net(arch="wrn-10-1"), seed=0), 1, 0)
    with pytest.raises(ValueError, match=r"^images: 4 came in step 1 where 8 were due; look at the input$"):
        train(task, images, None, PASSES, seed=0)
