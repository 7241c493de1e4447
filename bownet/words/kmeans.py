"""k-means (equation 2): vectors in, K centroids out, by Lloyd's algorithm over any source that can sample and sum them.

A tensor in memory, a set of Ray workers and a GPU are sources of the same loop, and give the same centroids to the
last bit, however the vectors are split, with any number of threads and any matrix library: vectors and centroids lie
on a `Grid` where sums are exact, and what single precision cannot tell apart is decided in double (nearest.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from bownet.words.grid import Grid, check_size, grid_for, survey
from bownet.words.nearest import Assigner, Sums

_CHUNK = 4096  # rows at a time


class Source(Protocol):
    """Vectors to be clustered, wherever they are."""

    def __len__(self) -> int: ...

    def sample(self, n: int, seed: int) -> Tensor:
        """n distinct vectors [n, D], the same for the same seed however the source is split."""
        ...

    def assign(self, centroids_KD: Tensor) -> Sums: ...


class ArraySource:
    """All vectors in one tensor; with a grid they have been put on it already."""

    def __init__(self, x_ND: Tensor, grid: Grid | None = None) -> None:
        self.x_ND = x_ND
        self.assign = Assigner(x_ND, grid)

    def __len__(self) -> int:
        return len(self.x_ND)

    def sample(self, n: int, seed: int) -> Tensor:
        return self.x_ND[sample_rows(len(self.x_ND), n, seed)]


@dataclass(frozen=True)
class Clusters:
    """Centroids, how many vectors each has, and the mean squared distance after every iteration."""

    centroids_KD: Tensor
    counts_K: Tensor
    inertia: tuple[float, ...]
    splits: int  # empty clusters that were given a part of a wide one, over all iterations


@dataclass(frozen=True)
class State:
    """Where the loop is: given back to `kmeans` it goes on, and ends with the same centroids as without a break."""

    restart: int
    centroids_KD: Tensor
    inertia: tuple[float, ...] = ()
    splits: int = 0
    converged: bool = False
    best: Clusters | None = None  # of the restarts that are done

    def pack(self) -> dict[str, Any]:
        """Tensors, numbers, lists and dicts only: `torch.load` reads it without running code."""
        return asdict(self)

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> State:
        best = packed["best"]
        return cls(**{**packed, "inertia": tuple(packed["inertia"]), "best": Clusters(**best) if best else None})


def cluster(
    x_ND: Tensor,
    k: int,
    *,
    seed: int,
    init: str = "kmeans++",
    iterations: int = 50,
    tolerance: float = 1e-4,
    restarts: int = 1,
    name: str = "vocabulary.size",
) -> Clusters:
    """k-means of vectors in memory, checked and put on their grid. The steps are those of any other source.

    `name` is that of the setting which says k, for errors.
    """
    grid = grid_for(survey(x_ND, k), k, name)
    source = ArraySource(grid.snap(x_ND), grid)
    return kmeans(
        source, k, seed=seed, init=init, iterations=iterations, tolerance=tolerance, restarts=restarts, grid=grid
    )


def kmeans(
    source: Source,
    k: int,
    *,
    seed: int,
    init: str = "kmeans++",
    iterations: int = 50,
    tolerance: float = 1e-4,
    restarts: int = 1,
    grid: Grid | None = None,
    on_iteration: Callable[[int, float], None] | None = None,
    state: State | None = None,
    on_state: Callable[[State], None] | None = None,
) -> Clusters:
    """Minimise equation 2 by Lloyd's algorithm; of several restarts the one with the lowest inertia.

    `grid` is that of the source's vectors: with it the result does not depend on how they are split.
    """
    check_size(k, len(source))
    if init not in ("kmeans++", "random"):
        raise ValueError(f"vocabulary.init={init!r}: known are kmeans++, random")
    if state and len(state.centroids_KD) != k:
        raise ValueError(f"vocabulary.size={k}: the saved state has {len(state.centroids_KD)} words, delete it")
    best = state.best if state else None
    for restart in range(state.restart if state else 0, restarts):
        if state is None:
            state = State(restart, _start(source, k, seed + 1_000_003 * restart, init), best=best)
            if on_state:
                on_state(state)
        while not state.converged and len(state.inertia) < iterations:
            state = _step(source, state, tolerance, grid)
            if on_iteration:
                on_iteration(len(state.inertia) - 1, state.inertia[-1])
            if on_state:
                on_state(state)
        final = source.assign(state.centroids_KD)
        inertia = (*state.inertia, final.inertia(state.centroids_KD) / len(source))
        if best is None or inertia[-1] < best.inertia[-1]:
            best = Clusters(state.centroids_KD, final.counts_K, inertia, state.splits)
        state = None
    assert best is not None, "restarts >= 1"
    return best


def _start(source: Source, k: int, seed: int, init: str) -> Tensor:
    if init == "random":
        return source.sample(k, seed).clone()
    return plus_plus(source.sample(min(len(source), 32 * k), seed), k, seed)


def _step(source: Source, state: State, tolerance: float, grid: Grid | None) -> State:
    """Assign all vectors, move the centroids to the means."""
    sums = source.assign(state.centroids_KD)
    history = (*state.inertia, sums.inertia(state.centroids_KD) / len(source))
    means = sums.means()
    split = split_empty(means, sums.counts_K, sums.spread_K(grid), seed=len(history))
    centroids = (grid.snap(means) if grid else means).to(state.centroids_KD)
    # Fallen by less than the tolerance, and no cluster was just moved: another pass would change nothing of note.
    converged = len(history) > 1 and not split and history[-2] - history[-1] <= tolerance * history[-2]
    return replace(state, centroids_KD=centroids, inertia=history, splits=state.splits + split, converged=converged)


def plus_plus(x_ND: Tensor, k: int, seed: int) -> Tensor:
    """k-means++ seeding: each next centroid is drawn with probability proportional to its squared distance.

    Candidates are drawn many at a time and kept with the probability by which their distance has shrunk since: the
    same distribution as one by one, but the distances are products of matrices.
    """
    x_ND = x_ND.cpu()
    rng = np.random.default_rng(seed)
    nearest_N = np.full(len(x_ND), np.inf)
    chosen = [int(rng.integers(len(x_ND)))]
    new = chosen
    while True:
        for start in range(0, len(x_ND), _CHUNK):
            rows = slice(start, start + _CHUNK)
            nearest_N[rows] = np.minimum(nearest_N[rows], _squares(x_ND[rows], x_ND[new]).min(1))
        nearest_N[new] = 0
        if len(chosen) == k:
            return x_ND[chosen].clone()
        cumulative = nearest_N.cumsum()
        if cumulative[-1] <= 0:  # fewer distinct vectors than words: take any not yet chosen
            rest = np.setdiff1d(np.arange(len(x_ND)), chosen)
            return x_ND[chosen + rest[: k - len(chosen)].tolist()].clone()
        wanted = min(k - len(chosen), 1 + len(chosen) // 4, 128)
        drawn = np.searchsorted(cumulative, rng.random(wanted) * cumulative[-1], side="right").clip(max=len(x_ND) - 1)
        accept = rng.random(wanted) * nearest_N[drawn]
        between = _squares(x_ND[drawn], x_ND[drawn])
        now = nearest_N[drawn]
        new = []
        for j in range(wanted):
            if accept[j] < now[j]:
                new.append(int(drawn[j]))
                now = np.minimum(now, between[j])
                now[drawn == drawn[j]] = 0
        chosen = chosen + new


def _squares(x_ND: Tensor, y_MD: Tensor) -> NDArray[np.float64]:
    """Squared distances in double precision: exact for vectors on a grid."""
    x, y = x_ND.double(), y_MD.double()
    squares: NDArray[np.float64] = (
        (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * (x @ y.T)).clamp_(min=0).numpy()
    )
    return squares


def split_empty(centroids_KD: Tensor, counts_K: Tensor, spread_K: NDArray[np.float64], seed: int) -> int:
    """Give each empty cluster half of the most spread one, in place; returns how many were given one.

    The two halves are those of a plane of random direction through the mean.
    """
    counts, spread = counts_K.cpu().numpy().copy(), spread_K.copy()
    splits = 0
    for j in np.flatnonzero(counts == 0).tolist():
        big = int(spread.argmax())
        if spread[big] <= 0 or counts[big] < 2:
            break  # every cluster holds equal vectors: there is nothing to be split
        deviation = (spread[big] / counts[big] / centroids_KD.shape[1]) ** 0.5
        signs = np.random.default_rng([seed, j]).choice([-1.0, 1.0], centroids_KD.shape[1])
        offset = torch.from_numpy(signs * deviation / 4).to(centroids_KD)
        centroids_KD[j] = centroids_KD[big] + offset
        centroids_KD[big] -= offset
        counts[j] = counts[big] // 2
        counts[big] -= counts[j]
        spread[j] = spread[big] = spread[big] / 2
        splits += 1
    return splits


def sample_rows(total: int, n: int, seed: int) -> Tensor:
    """n distinct row numbers in rising order."""
    generator = Generator().manual_seed(seed)
    return torch.randperm(total, generator=generator)[:n].sort().values
