"""The one training loop: a task, its images and an optimiser's settings go in; trained weights come out.

It knows nothing of Ray. Randomness comes from (seed, step, rank) alone, so that a run which continues from a
checkpoint takes exactly the steps that an undisturbed one takes.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bownet.config import Optimiser

Record = dict[str, float]
Forward = Callable[[Tensor, Tensor | None, torch.Generator], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Shard:
    """Which part of every batch this process computes."""

    rank: int = 0
    world: int = 1

    def part(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array_split(rows, self.world)[self.rank]


@dataclass(frozen=True)
class Hooks:
    """What the surroundings provide: where checkpoints go and who is told about progress."""

    save: Callable[[bytes], None] = lambda state: None
    on_epoch: Callable[[Record], None] = lambda record: None
    on_step: Callable[[Record], None] = lambda record: None  # at most about once a second


ALONE = Shard()
SILENT = Hooks()


def steps_per_epoch(images: int, config: Optimiser) -> int:
    return config.iterations_per_epoch or math.ceil(images / config.batch)


def batches(images: int, config: Optimiser, seed: int, epoch: int) -> Iterator[NDArray[np.int64]]:
    """Row numbers of each batch of an epoch.

    A pass shows every image exactly once, in batches whose sizes differ by at most one. With `iterations_per_epoch`
    an epoch is so many full batches of an endless sequence of passes.
    """
    return (batch_rows(images, config, seed, epoch, i) for i in range(steps_per_epoch(images, config)))


def batch_rows(images: int, config: Optimiser, seed: int, epoch: int, i: int) -> NDArray[np.int64]:
    """Row numbers of one batch, found without those before it."""
    if config.iterations_per_epoch is None:
        order, steps = _order(images, seed, epoch), steps_per_epoch(images, config)
        size, larger = divmod(images, steps)  # the first `larger` batches have one more
        start = i * size + min(i, larger)
        return order[start : start + size + (i < larger)]
    step = epoch * config.iterations_per_epoch + i
    start, stop = step * config.batch, (step + 1) * config.batch
    orders = [_order(images, seed, p) for p in range(start // images, (stop - 1) // images + 1)]
    offset = start - start // images * images
    return np.concatenate(orders)[offset : offset + config.batch]


_orders: dict[tuple[int, int], NDArray[np.int64]] = {}


def _order(images: int, seed: int, number: int) -> NDArray[np.int64]:
    """The permutation of one pass; the two last ones are kept, for a batch may span them."""
    key = (seed * 1_000_003 + number, images)
    if key not in _orders:
        while len(_orders) > 1:
            _orders.pop(next(iter(_orders)))
        _orders[key] = np.random.Generator(np.random.Philox(key=[seed, number])).permutation(images)
    return _orders[key]


class Input(Protocol):
    """Training images, wherever they are."""

    def __len__(self) -> int: ...

    def epoch(self, config: Optimiser, seed: int, epoch: int, shard: Shard) -> Iterator[Tensor]:
        """This process's part of each batch of an epoch, uint8 [n, H, W, 3], for the rows that `batches` names."""
        ...


@dataclass(frozen=True)
class InMemory:
    """All images in one array, indexed without copying more than a batch."""

    images_NHWC: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.images_NHWC)

    def epoch(self, config: Optimiser, seed: int, epoch: int, shard: Shard) -> Iterator[Tensor]:
        for rows in batches(len(self), config, seed, epoch):
            yield torch.from_numpy(self.images_NHWC[shard.part(rows)])


def learning_rate(config: Optimiser, epoch: float) -> float:
    """The rate at a point in time, in epochs; fractions count for warm-up and cosine."""
    if epoch < config.warmup_epochs:
        return config.lr * (epoch + 1e-3) / config.warmup_epochs
    if config.schedule == "cosine":
        done = (epoch - config.warmup_epochs) / (config.epochs - config.warmup_epochs)
        return config.lr * 0.5 * (1 + math.cos(math.pi * done))
    return config.lr * config.drop_factor ** sum(epoch >= drop for drop in config.drops)


def train(
    task: nn.Module,
    images: Input,
    targets: NDArray[Any] | None,
    config: Optimiser,
    seed: int,
    *,
    shard: Shard = ALONE,
    parallel: Callable[[nn.Module], nn.Module] = lambda task: task,
    resume: bytes | None = None,
    hooks: Hooks = SILENT,
) -> list[Record]:
    """Train `task` in place on its own device; returns one record per epoch, including those before a resume."""
    device = next(task.parameters()).device
    optimiser = torch.optim.SGD(
        task.parameters(),
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov and config.momentum > 0,
        weight_decay=config.weight_decay,
    )
    history = _restore(resume, task, optimiser) if resume else []
    forward = parallel(task)
    task.train()
    generator = torch.Generator()  # on the CPU: the same draws on every device, and none that waits for a GPU
    n, steps = len(images), steps_per_epoch(len(images), config)
    for epoch in range(len(history), config.epochs):
        totals: dict[str, Tensor] = {}
        started = told = time.perf_counter()
        seen = 0
        parts = images.epoch(config, seed, epoch, shard)
        for i, (rows, x) in enumerate(zip(batches(n, config, seed, epoch), parts, strict=True)):
            step = epoch * steps + i
            generator.manual_seed(_mix(seed, step, shard.rank))
            lr = learning_rate(config, step / steps)
            for group in optimiser.param_groups:
                group["lr"] = lr
            # torch indexes int32 on every device; uint16, as words are stored, it does not
            y = None if targets is None else torch.from_numpy(targets[shard.part(rows)].astype(np.int32))
            y = None if y is None else y.to(device, non_blocking=True)
            loss, metrics = forward(x.to(device, non_blocking=True), y, generator)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            seen += len(rows)
            for name, value in {"loss": loss.detach(), **metrics}.items():
                totals[name] = totals[name] + value.detach() if name in totals else value.detach().clone()
            if time.perf_counter() - told > 1:
                told = time.perf_counter()
                rate = seen / (told - started)
                hooks.on_step(
                    {"epoch": epoch, "epochs": config.epochs, "done": (i + 1) / steps, "images_per_second": rate}
                )
        record = _means(totals, steps, shard)
        if not math.isfinite(record["loss"]):
            raise ValueError(
                f"loss={record['loss']} in epoch {epoch + 1} at lr={lr:g}: it diverged, use a smaller optimiser.lr"
            )
        seconds = time.perf_counter() - started
        record |= {
            "epoch": epoch + 1,
            "epochs": config.epochs,
            "lr": lr,
            "images_per_second": seen / seconds,
            "time": time.time(),
        }
        history.append(record)
        if shard.rank == 0:
            hooks.save(_state(task, optimiser, history))
        hooks.on_epoch(record)
    return history


def _means(totals: dict[str, Tensor], steps: int, shard: Shard) -> Record:
    """Over the steps of an epoch and over all workers, so that every worker comes to the same conclusion."""
    stacked = torch.stack([value.float().reshape(()) for value in totals.values()]) / (steps * shard.world)
    if shard.world > 1:
        torch.distributed.all_reduce(stacked)
    return dict(zip(totals, stacked.tolist(), strict=True))


def _mix(seed: int, step: int, rank: int) -> int:
    """One 63-bit seed from three numbers, without the collisions of sums."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def _state(task: nn.Module, optimiser: torch.optim.Optimizer, history: list[Record]) -> bytes:
    buffer = io.BytesIO()
    torch.save({"task": task.state_dict(), "optimiser": optimiser.state_dict(), "history": history}, buffer)
    return buffer.getvalue()


def _restore(resume: bytes, task: nn.Module, optimiser: torch.optim.Optimizer) -> list[Record]:
    state: dict[str, Any] = torch.load(io.BytesIO(resume), weights_only=True, map_location="cpu")
    task.load_state_dict(state["task"])
    optimiser.load_state_dict(state["optimiser"])
    history: list[Record] = state["history"]
    return history
