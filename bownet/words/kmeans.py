"""k-means (equation 2): vectors in, K centroids out, by Lloyd's algorithm over any source that can sample and sum them.

A tensor in memory, a set of Ray workers and a GPU are sources of the same loop, and give the same centroids to the
last bit, however the vectors are split, with any number of threads and any matrix library:
1. vectors and centroids lie on a `Grid` so coarse that sums and products of its values are exact in double precision,
2. a vector whose two nearest centroids are closer together than single precision can tell is decided in double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

MAX_WORDS = 65536  # words are stored as uint16
_CHUNK = 1024  # rows per product: the distances of a chunk stay in the processor's cache
_GPU_CHUNK = 16384
_NAMED = 8  # rows that an error names at most


@dataclass(frozen=True)
class Survey:
    """What is to be known of all vectors before they are clustered. Surveys of parts add up."""

    rows: int
    low_D: Tensor
    high_D: Tensor
    total: float  # of the absolute values
    nonzero: int  # values
    bad_rows: int  # rows with values that are not finite
    bad: tuple[int, ...]  # the first of them
    k: int
    hashes: Tensor  # the k smallest of different rows: enough to tell whether there are k different rows

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            self.rows + other.rows,
            torch.minimum(self.low_D, other.low_D),
            torch.maximum(self.high_D, other.high_D),
            self.total + other.total,
            self.nonzero + other.nonzero,
            self.bad_rows + other.bad_rows,
            tuple(sorted(self.bad + other.bad)[:_NAMED]),
            self.k,
            torch.cat([self.hashes, other.hashes]).unique()[: self.k],
        )

    @property
    def largest(self) -> float:
        """Absolute value."""
        return float(torch.maximum(self.low_D.abs(), self.high_D.abs()).max())

    @property
    def constant_features(self) -> int:
        return int((self.low_D == self.high_D).sum())


@torch.no_grad()
def survey(x_ND: Tensor, k: int, first: int = 0) -> Survey:
    """Look once at vectors `first`, `first + 1`, ... that are to become k words."""
    d, device = x_ND.shape[1], x_ND.device
    # Random odd factors: two different rows have the same hash with a probability of about 2^-63.
    factors = torch.from_numpy(np.random.default_rng(0).integers(-(2**62), 2**62, d) * 2 + 1).to(device)
    low, high = torch.full((d,), torch.inf, device=device), torch.full((d,), -torch.inf, device=device)
    # One tensor for all: small ones kept from every chunk would hold the chunks' freed memory apart, twice the vectors.
    hash_N = torch.empty(len(x_ND), dtype=torch.int64, device=device)
    bad: list[int] = []
    total, nonzero, hashed = 0.0, 0, 0
    for start in range(0, len(x_ND), _CHUNK):
        x = x_ND[start : start + _CHUNK].float()
        finite = torch.isfinite(x).all(1)
        if not finite.all():
            bad += (first + start + (~finite).nonzero()[:, 0]).tolist()
            x = x[finite]
        if len(x):
            low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
            total += float(x.abs().sum(dtype=torch.float64))
            nonzero += int(x.count_nonzero())
            bits = (x + 0.0).view(torch.int32).long()  # + 0.0 makes a zero of a negative zero
            hash_N[hashed : hashed + len(x)] = bits.mul_(factors).sum(1)
            hashed += len(x)
    distinct = hash_N[:hashed].unique()[:k].cpu()
    return Survey(len(x_ND), low.cpu(), high.cpu(), total, nonzero, len(bad), tuple(bad[:_NAMED]), k, distinct)


@dataclass(frozen=True)
class Grid:
    """Multiples of `step`, a power of two: sums of all vectors, and products of any two, are exact in double precision.

    The step is about a millionth of the largest value. Squared lengths are multiples of `square_step`.
    """

    step: float
    square_step: float

    def snap(self, x: Tensor) -> Tensor:
        return (x / self.step).round_().mul_(self.step)

    def snap_(self, x: Tensor) -> Tensor:
        return x.div_(self.step).round_().mul_(self.step)


def grid_for(seen: Survey, k: int) -> Grid:
    """The grid of these vectors, or an error when they cannot become k words."""
    n, d = seen.rows, len(seen.low_D)
    _check_size(k, n)
    if seen.bad_rows:
        raise ValueError(f"{_not_finite(seen.bad_rows, n, seen.bad)}; the teacher's training has diverged")
    if k > 1 and seen.constant_features == d:
        raise ValueError(
            f"feature vectors: all {n} are the same, the teacher has collapsed; use another teacher or tap"
        )
    assert k == seen.k, "surveyed for another k"
    if k > len(seen.hashes):
        raise ValueError(
            f"vocabulary.size={k}: only {len(seen.hashes)} of the {n} feature vectors differ, "
            f"use 1..{len(seen.hashes)} or more images"
        )
    if not seen.largest:
        return Grid(1.0, 1.0)
    # |c|²/2 - x·c must stay below 2^53 half square steps, and the sum of n values below 2^53 steps.
    bits = min((50 - math.ceil(math.log2(d))) // 2, 53 - math.ceil(math.log2(n)), 23)
    step = 2.0 ** (math.frexp(seen.largest)[1] - bits)
    typical = seen.total / seen.nonzero
    if step * 64 > typical:
        raise ValueError(
            f"feature vectors: the largest value is {seen.largest:.3g} but the mean is {typical:.3g}; "
            "such an outlier hides all other differences, look at the teacher's features"
        )
    spare = 53 - 2 * bits - math.ceil(math.log2(d)) - math.ceil(math.log2(n))
    return Grid(step, step**2 * 2.0 ** max(0, -spare))


@dataclass(frozen=True)
class Sums:
    """What one pass over the vectors gives per centroid: how many belong to it, their sum, their squared lengths."""

    counts_K: Tensor  # int64
    sums_KD: Tensor  # float64
    squares_K: Tensor  # float64

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.counts_K + other.counts_K, self.sums_KD + other.sums_KD, self.squares_K + other.squares_K)

    def flat(self) -> Tensor:
        """All in one float64 tensor, for one all-reduce; exact, as counts are far below 2^53."""
        return torch.cat([self.counts_K.double(), self.squares_K, self.sums_KD.flatten()])

    @classmethod
    def of_flat(cls, flat: Tensor, k: int) -> Sums:
        counts, squares, sums = flat.split([k, k, len(flat) - 2 * k])
        return cls(counts.long(), sums.view(k, -1), squares)

    def inertia(self, centroids_KD: Tensor) -> float:
        """Sum of squared distances to the centroids of this assignment."""
        return math.fsum(self._inertia_K(centroids_KD.cpu().double().numpy()))

    def means(self) -> Tensor:
        """Double-precision means of the clusters, zero for empty ones."""
        return self.sums_KD / self.counts_K.clamp(min=1)[:, None]

    def spread_K(self, grid: Grid | None) -> NDArray[np.float64]:
        """Sum of squared distances of each cluster to its own mean; zero where rounding could have made it."""
        spread = self._inertia_K(self.means().cpu().numpy())
        noise = self.squares_K.cpu().numpy() * 2.0**-40
        if grid:
            noise += self.counts_K.cpu().numpy() * grid.square_step
        return np.where(spread > noise, spread, 0)

    def _inertia_K(self, c_KD: NDArray[np.float64]) -> NDArray[np.float64]:
        # numpy adds in an order that does not depend on the number of threads.
        sums, counts, squares = (t.cpu().numpy() for t in (self.sums_KD, self.counts_K, self.squares_K))
        return np.maximum(squares - (c_KD * (2 * sums - counts[:, None] * c_KD)).sum(1), 0)


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
        self.grid = grid

    def __len__(self) -> int:
        return len(self.x_ND)

    def sample(self, n: int, seed: int) -> Tensor:
        return self.x_ND[sample_rows(len(self.x_ND), n, seed)]

    def assign(self, centroids_KD: Tensor) -> Sums:
        return assign_and_sum(self.x_ND, centroids_KD, self.grid)


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
) -> Clusters:
    """k-means of vectors in memory, checked and put on their grid. The steps are those of any other source."""
    grid = grid_for(survey(x_ND, k), k)
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
    _check_size(k, len(source))
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


def _check_size(k: int, n: int) -> None:
    if not 1 <= k <= MAX_WORDS:
        raise ValueError(f"vocabulary.size={k}: words are stored as uint16, use 1..{MAX_WORDS}")
    if k > n:
        raise ValueError(
            f"vocabulary.size={k}: there are only {n} feature vectors, use a smaller vocabulary or more images"
        )


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
        for start in range(0, len(x_ND), 4 * _CHUNK):
            rows = slice(start, start + 4 * _CHUNK)
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


def nearest(x_ND: Tensor, centroids_KD: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 1 for rows: index of the nearest centroid and the squared distance to it."""
    index_N = nearest_index(x_ND, centroids_KD)
    distance_N = torch.empty(len(x_ND), dtype=centroids_KD.dtype, device=x_ND.device)
    for start in range(0, len(x_ND), _CHUNK):
        rows = slice(start, start + _CHUNK)
        distance_N[rows] = (x_ND[rows] - centroids_KD[index_N[rows]]).square_().sum(1)
    return index_N, distance_N


@torch.no_grad()
def nearest_index(x_ND: Tensor, centroids_KD: Tensor) -> Tensor:
    """Equation 1 for rows: index of the nearest centroid, the lower one of two that are equally near.

    The product is in single precision; the rows that its rounding error could decide are done again in double.
    """
    (n, d), device = x_ND.shape, x_ND.device
    if d != centroids_KD.shape[1]:
        raise ValueError(f"feature vectors have {d} channels, the centroids {centroids_KD.shape[1]}")
    half_norms_K = centroids_KD.double().square().sum(1) / 2
    bias_K = half_norms_K.to(centroids_KD.dtype)
    transposed = centroids_KD.T.contiguous()
    chunk = min(_CHUNK if device.type == "cpu" else _GPU_CHUNK, max(n, 1))
    score = torch.empty(chunk, len(centroids_KD), dtype=centroids_KD.dtype, device=device)
    index_N = torch.empty(n, dtype=torch.int64, device=device)
    best_N, second_N, norm_N = torch.empty(3, n, dtype=centroids_KD.dtype, device=device).unbind()
    for start in range(0, n, chunk):
        rows = slice(start, start + chunk)
        x = x_ND[rows].to(centroids_KD.dtype)
        score_NK = torch.mm(x, transposed, out=score[: len(x)]).sub_(bias_K)
        # numpy's argmax is vectorised, torch's is not: 2% of the time of the product against 20%.
        index = torch.from_numpy(score_NK.numpy().argmax(1)) if device.type == "cpu" else score_NK.argmax(1)
        best_N[rows] = score_NK.gather(1, index[:, None])[:, 0]
        score_NK.scatter_(1, index[:, None], -torch.inf)
        index_N[rows] = index
        second_N[rows] = score_NK.amax(1)
        norm_N[rows] = torch.linalg.vector_norm(x, dim=1)
    if not torch.isfinite(norm_N).all():
        bad = (~torch.isfinite(norm_N)).nonzero()[:, 0].tolist()
        raise ValueError(_not_finite(len(bad), n, tuple(bad[:_NAMED])))
    # The classical bound on the error of a sum of d products in any order, for each of the two scores x·c - |c|²/2.
    # Centroids longer than |x| and the least distance together are out of question: a tenth is ample for d < 20000.
    reach_N = 1.1 * (norm_N + (norm_N.square() - 2 * best_N).clamp_(min=0).sqrt_())
    reach_N.clamp_(max=float((2 * half_norms_K.max()) ** 0.5))
    error_N = 2 * (d + 8) * _roundoff(centroids_KD.dtype) * reach_N * (norm_N + reach_N / 2)
    doubtful = (best_N - second_N <= error_N).nonzero()[:, 0]
    exact_KD = centroids_KD.double()
    number_K = torch.arange(len(centroids_KD), device=device)
    for rows in doubtful.split(max(chunk // 8, 1)):  # double precision takes more room
        exact_NK = torch.addmm(half_norms_K, x_ND[rows].double(), exact_KD.T, alpha=-1)
        ties_NK = exact_NK == exact_NK.amin(1, keepdim=True)
        index_N[rows] = torch.where(ties_NK, number_K, len(number_K)).amin(1)
    return index_N


def _not_finite(bad: int, n: int, rows: tuple[int, ...]) -> str:
    named = ", ".join(map(str, rows)) + (", ..." if bad > len(rows) else "")
    return f"feature vectors: {bad} of {n} are not finite (rows {named})"


def _roundoff(dtype: torch.dtype) -> float:
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return 2.0**-8  # products may be in TF32 or bfloat16
    return torch.finfo(dtype).eps / 2


@torch.no_grad()
def assign_and_sum(x_ND: Tensor, centroids_KD: Tensor, grid: Grid | None = None) -> Sums:
    """One pass: assign every vector, add it to its centroid's sum in double precision."""
    index_N = nearest_index(x_ND, centroids_KD)
    (k, d), device = centroids_KD.shape, x_ND.device
    sums = torch.zeros(k, d, dtype=torch.float64, device=device)
    squares = torch.zeros(k, dtype=torch.float64, device=device)
    double = torch.empty(min(_CHUNK, max(len(x_ND), 1)), d, dtype=torch.float64, device=device)
    for start in range(0, len(x_ND), _CHUNK):
        index = index_N[start : start + _CHUNK]
        x = double[: len(index)].copy_(x_ND[start : start + _CHUNK])  # a buffer that stays in the cache
        sums.index_add_(0, index, x)
        square = torch.linalg.vecdot(x, x)
        if grid:
            square = square.div_(grid.square_step).round_().mul_(grid.square_step)
        squares.index_add_(0, index, square)
    return Sums(torch.bincount(index_N, minlength=k), sums, squares)


def sample_rows(total: int, n: int, seed: int) -> Tensor:
    """n distinct row numbers in rising order."""
    generator = Generator().manual_seed(seed)
    return torch.randperm(total, generator=generator)[:n].sort().values
