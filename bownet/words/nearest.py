"""Equation 1: the nearest centroid of every vector, exact also where single precision would err; sums per centroid.

A vector whose two nearest centroids are closer together than single precision can tell is decided in double.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bownet.products import inner
from bownet.words.grid import NAMED, Grid, not_finite
from bownet.words.pruning import Sketch, is_worth_trying

_CHUNK, _CHUNK_BYTES = 1024, 8 << 20  # rows per product, and of their scores: they stay in the processor's cache
_GPU_CHUNK = 16384


@torch.no_grad()
def nearest_index(x_ND: Tensor, centroids_KD: Tensor, guess_N: Tensor | None = None) -> Tensor:
    """Equation 1 for rows: index of the nearest centroid, the lower one of two that are equally near.

    Products are in single precision; the rows that its rounding error could decide are done again in double. `guess_N`
    is a centroid for each row: one that is near saves work. It changes no result.
    """
    (n, d), device = x_ND.shape, x_ND.device
    if d != centroids_KD.shape[1]:
        raise ValueError(f"feature vectors have {d} channels, the centroids {centroids_KD.shape[1]}")
    dtype, finder = centroids_KD.dtype, _Finder(centroids_KD, n, guess_N is not None)
    index_N = torch.empty(n, dtype=torch.int64, device=device)
    best_N, second_N, norm_N = torch.empty(3, n, dtype=dtype, device=device).unbind()
    for start in range(0, n, finder.chunk):
        rows = slice(start, start + finder.chunk)
        x = x_ND[rows].to(dtype)
        index_N[rows], best_N[rows], second_N[rows] = finder(x, None if guess_N is None else guess_N[rows])
        norm_N[rows] = torch.linalg.vector_norm(x, dim=1)
    if not torch.isfinite(norm_N).all():
        bad = (~torch.isfinite(norm_N)).nonzero()[:, 0].tolist()
        raise ValueError(not_finite(len(bad), n, tuple(bad[:NAMED])))
    # The classical bound on the error of a sum of d products in any order, for each of the two scores x·c - |c|²/2.
    # Centroids longer than |x| and the least distance together are out of question: a tenth is ample for d < 20000.
    reach_N = 1.1 * (norm_N + (norm_N.square() - 2 * best_N).clamp_(min=0).sqrt_())
    reach_N.clamp_(max=float((2 * finder.half_norms_K.max()) ** 0.5))
    error_N = 2 * (d + 8) * _roundoff(dtype) * reach_N * (norm_N + reach_N / 2)
    doubtful = (best_N - second_N <= error_N).nonzero()[:, 0]
    exact_KD = centroids_KD.double()
    number_K = torch.arange(len(centroids_KD), device=device)
    for rows in doubtful.split(max(finder.chunk // 8, 1)):  # double precision takes more room
        exact_NK = torch.addmm(finder.half_norms_K, x_ND[rows].double(), exact_KD.T, alpha=-1)
        ties_NK = exact_NK == exact_NK.amin(1, keepdim=True)
        index_N[rows] = torch.where(ties_NK, number_K, len(number_K)).amin(1)
    return index_N


class _Finder:
    """The two best scores x·c - |c|²/2 of each row of a chunk: of the pairs that pruning leaves, or of all."""

    def __init__(self, centroids_KD: Tensor, rows: int, with_guess: bool) -> None:
        k, device = len(centroids_KD), centroids_KD.device
        most = _GPU_CHUNK if device.type == "cuda" else min(_CHUNK, max(_CHUNK_BYTES // (4 * k), 64))
        self.chunk = min(most, max(rows, 1))
        self.half_norms_K = centroids_KD.double().square().sum(1) / 2
        self._bias_K = self.half_norms_K.to(centroids_KD.dtype)
        self._centroids_KD = centroids_KD.contiguous()
        self._score = torch.empty(self.chunk, k, dtype=centroids_KD.dtype, device=device)
        self._sketch: Sketch | None = None
        if is_worth_trying(centroids_KD):
            self._sketch = Sketch(centroids_KD, with_guess, _roundoff(centroids_KD.dtype), self._score)
        self._wait, self._waiting = 1, 0  # chunks without pruning after one where it left too much

    def __call__(self, x_ND: Tensor, guess_N: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        pairs = None
        if self._waiting:
            self._waiting -= 1
        elif self._sketch:
            pairs = self._sketch.pairs(x_ND, guess_N)
            if pairs is None:
                self._waiting, self._wait = self._wait, self._wait * 2
        return pairs.best_two() if pairs else self._of_all(x_ND)

    def _of_all(self, x_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        score_NK = inner(x_ND, self._centroids_KD, self._score[: len(x_ND)]).sub_(self._bias_K)
        # numpy's argmax is vectorised, torch's is not: 2% of the time of the product against 20%.
        index = torch.from_numpy(score_NK.numpy().argmax(1)) if x_ND.device.type == "cpu" else score_NK.argmax(1)
        best = score_NK.gather(1, index[:, None])[:, 0]
        score_NK.scatter_(1, index[:, None], -torch.inf)
        return index, best, score_NK.amax(1)


def _roundoff(dtype: torch.dtype) -> float:
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return 2.0**-8  # products may be in TF32 or bfloat16
    return torch.finfo(dtype).eps / 2


@dataclass(frozen=True)
class Sums:
    """What one pass over the vectors gives per centroid: how many belong to it, their sum, their squared lengths."""

    counts_K: Tensor  # int64
    sums_KD: Tensor  # float64
    squares_K: Tensor  # float64

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.counts_K + other.counts_K, self.sums_KD + other.sums_KD, self.squares_K + other.squares_K)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.counts_K - other.counts_K, self.sums_KD - other.sums_KD, self.squares_K - other.squares_K)

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


class Assigner:
    """Assigns the same vectors to ever new centroids. What it remembers of the last time saves work, no more.

    With a grid, on which the vectors must lie, sums are exact: vectors that have stayed need not be added again.
    """

    def __init__(self, x_ND: Tensor, grid: Grid | None = None) -> None:
        self.x_ND = x_ND
        self._grid = grid
        self._last: tuple[Tensor, Tensor, Sums] | None = None  # centroids, index_N and their sums

    @torch.no_grad()
    def __call__(self, centroids_KD: Tensor) -> Sums:
        k, sums = len(centroids_KD), None
        if self._last and self._are_near(centroids_KD):
            _, before_N, before = self._last
            index_N = nearest_index(self.x_ND, centroids_KD, before_N)
            moved = (index_N != before_N).nonzero()[:, 0]
            if self._grid and 2 * len(moved) < len(index_N):
                sums = before - self._add_up(before_N, k, moved) + self._add_up(index_N, k, moved)
        else:
            index_N = nearest_index(self.x_ND, centroids_KD)
        sums = sums or self._add_up(index_N, k)
        self._last = centroids_KD, index_N, sums
        return sums

    def _are_near(self, centroids_KD: Tensor) -> bool:
        """Whether they are the last ones, moved a little, and not those of another start."""
        assert self._last
        last_KD, index_N, sums = self._last
        if last_KD.shape != centroids_KD.shape:
            return False
        return float((centroids_KD - last_KD).square().sum(1).mean()) * len(index_N) <= 2 * sums.inertia(last_KD)

    def _add_up(self, index_N: Tensor, k: int, only: Tensor | None = None) -> Sums:
        """Count and sum the vectors of each centroid, all or only some of them, in double precision."""
        d, device = self.x_ND.shape[1], self.x_ND.device
        count = len(index_N) if only is None else len(only)
        counts = torch.zeros(k, dtype=torch.int64, device=device)
        sums = torch.zeros(k, d, dtype=torch.float64, device=device)
        squares = torch.zeros(k, dtype=torch.float64, device=device)
        buffer = torch.empty(min(_CHUNK, max(count, 1)), d, dtype=torch.float64, device=device)  # stays in the cache
        for start in range(0, count, _CHUNK):
            rows = slice(start, start + _CHUNK) if only is None else only[start : start + _CHUNK]
            index = index_N[rows]
            x = buffer[: len(index)].copy_(self.x_ND[rows])
            sums.index_add_(0, index, x)
            square = torch.linalg.vecdot(x, x)
            if self._grid:
                square = square.div_(self._grid.square_step).round_().mul_(self._grid.square_step)
            squares.index_add_(0, index, square)
            counts += torch.bincount(index, minlength=k)
        return Sums(counts, sums, squares)
