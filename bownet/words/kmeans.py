"""k-means (equation 2): Lloyd's algorithm over any source that can sample vectors and sum them per centroid.

A tensor in memory, a set of Ray workers and a GPU are sources of the same loop. Sums are in double precision, so
that the centroids do not depend on how the vectors are split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor

_CHUNK = 1024  # rows per product: the distances of a chunk stay in the processor's cache


@dataclass(frozen=True)
class Sums:
    """What one pass over the vectors gives: how many belong to each centroid, their sum, and the squared distance."""

    counts_K: Tensor  # int64
    sums_KD: Tensor  # float64
    inertia: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.counts_K + other.counts_K, self.sums_KD + other.sums_KD, self.inertia + other.inertia)


class Source(Protocol):
    """Vectors to be clustered, wherever they are."""

    def __len__(self) -> int: ...

    def sample(self, n: int, seed: int) -> Tensor:
        """n distinct vectors [n, D], the same for the same seed however the source is split."""
        ...

    def assign(self, centroids_KD: Tensor) -> Sums: ...


class ArraySource:
    """All vectors in one tensor."""

    def __init__(self, x_ND: Tensor) -> None:
        self.x_ND = x_ND

    def __len__(self) -> int:
        return len(self.x_ND)

    def sample(self, n: int, seed: int) -> Tensor:
        return self.x_ND[sample_rows(len(self.x_ND), n, seed)]

    def assign(self, centroids_KD: Tensor) -> Sums:
        return assign_and_sum(self.x_ND, centroids_KD)


@dataclass(frozen=True)
class Clusters:
    """Centroids, how many vectors each has, and the mean squared distance after every iteration."""

    centroids_KD: Tensor
    counts_K: Tensor
    inertia: tuple[float, ...]
    splits: int  # empty clusters that were given half of a large one, over all iterations


def kmeans(
    source: Source,
    k: int,
    *,
    seed: int,
    init: str = "kmeans++",
    iterations: int = 50,
    tolerance: float = 1e-4,
    on_iteration: Callable[[int, float], None] | None = None,
) -> Clusters:
    """Minimise equation 2 by Lloyd's algorithm."""
    n = len(source)
    if k > n:
        raise ValueError(
            f"vocabulary.size={k}: there are only {n} feature vectors, use a smaller vocabulary or more images"
        )
    if init == "kmeans++":
        centroids = plus_plus(source.sample(min(n, 32 * k), seed), k, seed)
    else:
        centroids = source.sample(k, seed).clone()
    history: list[float] = []
    splits = 0
    for i in range(iterations):
        step = source.assign(centroids)
        history.append(step.inertia / n)
        if on_iteration:
            on_iteration(i, history[-1])
        centroids = (step.sums_KD / step.counts_K.clamp(min=1)[:, None]).to(centroids.dtype)
        empty = split_empty(centroids, step.counts_K)
        splits += empty
        # Fallen by less than the tolerance, and no cluster was just moved: another pass would change nothing of note.
        if len(history) > 1 and not empty and history[-2] - history[-1] <= tolerance * history[-2]:
            break
    final = source.assign(centroids)
    history.append(final.inertia / n)
    return Clusters(centroids, final.counts_K, tuple(history), splits)


def plus_plus(x_ND: Tensor, k: int, seed: int) -> Tensor:
    """k-means++ seeding: each next centroid is drawn with probability proportional to its squared distance."""
    generator = torch.Generator().manual_seed(seed)
    norms_N = x_ND.square().sum(1)
    chosen = [int(torch.randint(len(x_ND), (1,), generator=generator))]
    nearest_N = torch.full_like(norms_N, torch.inf)
    for _ in range(k - 1):
        c = x_ND[chosen[-1]]
        nearest_N = torch.minimum(nearest_N, (norms_N - 2 * (x_ND @ c) + c.square().sum()).clamp_(min=0))
        nearest_N[chosen[-1]] = 0
        cumulative = nearest_N.double().cumsum(0)
        if cumulative[-1] <= 0:  # fewer distinct vectors than words: take any not yet chosen
            taken = torch.zeros(len(x_ND), dtype=torch.bool)
            taken[chosen] = True
            chosen.append(int((~taken).nonzero()[0]))
            continue
        draw = torch.rand(1, generator=generator, dtype=torch.float64) * cumulative[-1]
        chosen.append(min(int(torch.searchsorted(cumulative, draw)), len(x_ND) - 1))
    return x_ND[chosen].clone()


def split_empty(centroids_KD: Tensor, counts_K: Tensor) -> int:
    """Give each empty cluster half of the largest one, in place; returns how many there were."""
    counts = counts_K.clone()
    empty = torch.nonzero(counts == 0)[:, 0].tolist()
    for j in empty:
        big = int(counts.argmax())
        sign = torch.ones_like(centroids_KD[big])
        sign[1::2] = -1
        centroids_KD[j] = centroids_KD[big] * (1 + sign / 1024)
        centroids_KD[big] = centroids_KD[big] * (1 - sign / 1024)
        counts[j] = counts[big] // 2
        counts[big] -= counts[j]
    return len(empty)


def nearest(x_ND: Tensor, centroids_KD: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 1 for rows: index of the nearest centroid and the squared distance to it."""
    half_norms_K = centroids_KD.square().sum(1) / 2
    index = torch.empty(len(x_ND), dtype=torch.int64, device=x_ND.device)
    distance = torch.empty(len(x_ND), dtype=x_ND.dtype, device=x_ND.device)
    transposed = centroids_KD.T.contiguous()
    for start in range(0, len(x_ND), _CHUNK):
        x = x_ND[start : start + _CHUNK]
        score, index[start : start + _CHUNK] = torch.addmm(half_norms_K, x, transposed, alpha=-1).min(1)
        distance[start : start + _CHUNK] = (2 * score + x.square().sum(1)).clamp_(min=0)
    return index, distance


def assign_and_sum(x_ND: Tensor, centroids_KD: Tensor) -> Sums:
    """One pass: assign every vector, add it to its centroid's sum in double precision."""
    index_N, distance_N = nearest(x_ND, centroids_KD)
    k, d = centroids_KD.shape
    sums = torch.zeros(k, d, dtype=torch.float64, device=x_ND.device)
    for start in range(0, len(x_ND), 16 * _CHUNK):
        rows = slice(start, start + 16 * _CHUNK)
        sums.index_add_(0, index_N[rows], x_ND[rows].double())
    return Sums(torch.bincount(index_N, minlength=k), sums, float(distance_N.double().sum()))


def sample_rows(total: int, n: int, seed: int) -> Tensor:
    """n distinct row numbers in rising order."""
    generator = Generator().manual_seed(seed)
    return torch.randperm(total, generator=generator)[:n].sort().values
