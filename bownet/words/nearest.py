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

from bownet.words.grid import NAMED, Grid, not_finite

_CHUNK = 1024  # rows per product: the distances of a chunk stay in the processor's cache
_GPU_CHUNK = 16384


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
        raise ValueError(not_finite(len(bad), n, tuple(bad[:NAMED])))
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
