"""Which images each step shows, and to which worker: a function of seed, epoch and step alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bownet.config import Optimiser

IN_ORDER = 256  # images at a time, where all are shown in order


@dataclass(frozen=True)
class Shard:
    """Which part of every batch this process computes."""

    rank: int = 0
    world: int = 1

    def part(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array_split(rows, self.world)[self.rank]


ALONE = Shard()


def steps_per_epoch(images: int, config: Optimiser) -> int:
    return config.iterations_per_epoch or math.ceil(images / config.batch)


def smallest_batch(images: int, config: Optimiser) -> int:
    return config.batch if config.iterations_per_epoch else images // steps_per_epoch(images, config)


def check_workers(images: int, config: Optimiser, workers: int, gpu: bool, name: str = "optimiser") -> None:
    """Raise a ValueError for what so many workers, with a GPU each or none, cannot do; `name` is the settings'."""
    if config.sync_batch_norm and not gpu:
        raise ValueError(f"{name}.sync_batch_norm=True: torch has it for GPUs only, use False on CPUs")
    smallest = smallest_batch(images, config)
    if smallest < workers * config.accumulate:
        parts = f"{workers} workers" + (f" x {name}.accumulate={config.accumulate}" if config.accumulate > 1 else "")
        raise ValueError(
            f"{name}.batch={config.batch}: {images} images give batches of {smallest}, too few for {parts}; "
            "use fewer of them, or larger batches"
        )


def batches(images: int, config: Optimiser, seed: int, epoch: int, first: int = 0) -> Iterator[NDArray[np.int64]]:
    """Row numbers of each batch of an epoch, from batch `first` on.

    A pass shows every image exactly once, in batches whose sizes differ by at most one. With `iterations_per_epoch`
    an epoch is so many full batches of an endless sequence of passes.
    """
    return (batch_rows(images, config, seed, epoch, i) for i in range(first, steps_per_epoch(images, config)))


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

    def __iter__(self) -> Iterator[Tensor]:
        """All images once and in order, as they are without any cropping for training: uint8 [n, H, W, 3]."""
        ...

    def epoch(self, config: Optimiser, seed: int, epoch: int, shard: Shard, first: int = 0) -> Iterator[Tensor]:
        """This process's part of each batch of an epoch, uint8 [n, H, W, 3], for the rows that `batches` names.

        It begins with batch `first`; those before it are not even read.
        """
        ...


@dataclass(frozen=True)
class InMemory:
    """All images in one array, indexed without copying more than a batch."""

    images_NHWC: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.images_NHWC)

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(0, len(self), IN_ORDER):
            yield torch.from_numpy(np.array(self.images_NHWC[start : start + IN_ORDER]))

    def epoch(self, config: Optimiser, seed: int, epoch: int, shard: Shard, first: int = 0) -> Iterator[Tensor]:
        for rows in batches(len(self), config, seed, epoch, first):
            yield torch.from_numpy(self.images_NHWC[shard.part(rows)])
