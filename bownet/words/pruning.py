"""Leave out most of the products that the nearest centroid needs, and lose none that could be it.

In a basis where the centroids differ most in their first coordinates, a vector x = (x1, x2) and a centroid c = (c1, c2)
have x·c = x1·c1 + x2·c2 <= x1·c1 + |x2||c2|. So a product of short vectors (x1, |x2|) and (c1, |c2|) bounds all scores
x·c - |c|²/2 from above; a centroid whose bound is below the true score of another one cannot be the nearest. On
features of real images a handful of 2048 remain. Every bound is widened by the largest rounding error of its making.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bownet.products import inner

MIN_CHANNELS, MIN_WORDS = 96, 512  # with fewer the whole product is as fast
WORTH = 0.06  # share of pairs that may remain before the whole product is faster


def is_worth_trying(centroids_KD: Tensor) -> bool:
    k, d = centroids_KD.shape
    is_single = centroids_KD.device.type == "cpu" and centroids_KD.dtype == torch.float32
    return is_single and d >= MIN_CHANNELS and k >= MIN_WORDS


@dataclass(frozen=True)
class Pairs:
    """For each row of a chunk the centroids that remain, in rising order, and their scores x·c - |c|²/2."""

    counts_N: NDArray[np.int64]
    columns_P: NDArray[np.int64]
    scores_P: NDArray[np.float32]

    def best_two(self) -> tuple[Tensor, Tensor, Tensor]:
        """Per row: the best centroid, its score, and the second best score (-inf where only one remains)."""
        starts = np.cumsum(self.counts_N) - self.counts_N
        best = np.maximum.reduceat(self.scores_P, starts)
        is_best = np.flatnonzero(self.scores_P == np.repeat(best, self.counts_N))
        first = is_best[np.searchsorted(is_best, starts)]
        others = self.scores_P.copy()
        others[first] = -np.inf
        second = np.maximum.reduceat(others, starts)
        return torch.from_numpy(self.columns_P[first]), torch.from_numpy(best), torch.from_numpy(second)


class Sketch:
    """Centroids in their own basis, ready to be compared with chunks of vectors."""

    def __init__(self, centroids_KD: Tensor, with_guess: bool, roundoff: float, room_NK: Tensor) -> None:
        self._centroids_KD = centroids_KD
        self._room_NK = room_NK  # scores of a chunk
        d = centroids_KD.shape[1]
        short = min(max(d // 8, 16), 64) if with_guess else min(max(d // 4, 32), 128)  # without, more must be known
        exact = centroids_KD.double()
        mean = exact.mean(0)
        basis_DS = _basis(exact - mean, short)
        first_KS, square_K = (exact - mean) @ basis_DS, (exact - mean).square().sum(1)
        rest_K = (square_K - first_KS.square().sum(1)).clamp(min=0).sqrt() * (1 + 1e-5) + 1e-7 * square_K.sqrt()
        self._half_K = (exact.square().sum(1) / 2).float()
        # One product of a chunk gives its first coordinates and x·mean; one more the bounds of all its scores.
        self._into = torch.cat([basis_DS, mean[:, None]], 1).float()
        self._origin_S = (mean @ basis_DS).float()
        self._bounds = torch.cat([first_KS, rest_K[:, None], -square_K[:, None] / 2], 1).float().contiguous()
        self._mean_square, self._mean_length = float(mean.square().sum()), float(mean.norm())
        self._reach = float(square_K.max().sqrt())
        self._roundoff = (d + 8) * roundoff
        self._widen = short**0.5 + 4
        self._remain = np.zeros((len(room_NK), -(-room_NK.shape[1] // 8) * 8), np.bool_)
        self._short_NS = torch.ones(len(room_NK), short + 2)

    def pairs(self, x_ND: Tensor, guess_N: Tensor | None) -> Pairs | None:
        """The centroids that could be the nearest of these rows, or None where too many remain.

        `guess_N` is any centroid per row; the nearer it is, the fewer remain.
        """
        n, k = len(x_ND), len(self._centroids_KD)
        projected, length_N = x_ND @ self._into, torch.linalg.vector_norm(x_ND, dim=1)
        short = self._short_NS[:n]
        short[:, :-2] = projected[:, :-1] - self._origin_S
        to_mean_N = projected[:, -1]
        square_N = length_N.square() - 2 * to_mean_N + self._mean_square
        size_N = length_N + self._mean_length
        noise_N = 8 * self._roundoff * size_N.square()
        first_N = torch.linalg.vector_norm(short[:, :-2], dim=1).square_()
        short[:, -2] = (square_N - first_N).clamp_(min=0).add_(noise_N).sqrt_()

        score_NK = inner(short, self._bounds, self._room_NK[:n]).numpy()
        if guess_N is None:
            guess_N = torch.from_numpy(score_NK.argmax(1))
        # The scores of the bounds are those of x - mean and c - mean: x·mean - |mean|²/2 apart from those of x and c.
        guessed_ND = self._centroids_KD.index_select(0, guess_N)  # four times as fast as an index
        reached = torch.linalg.vecdot(x_ND, guessed_ND) - self._half_K.index_select(0, guess_N)
        reached -= to_mean_N - self._mean_square / 2
        reached -= self._widen * self._roundoff * size_N * (size_N + self._reach + self._mean_length)
        remain = self._remain[:n]
        np.greater_equal(score_NK, reached.numpy()[:, None], out=remain[:, :k])
        remain[np.arange(n), guess_N.numpy()] = True  # for one, where the vector is not finite
        places_P = _places(remain)
        if len(places_P) > WORTH * n * k:
            return None
        rows_P = places_P // remain.shape[1]
        columns_P = places_P - rows_P * remain.shape[1]
        counts_N = np.bincount(rows_P, minlength=n)
        scores = self._scores_of(x_ND, counts_N, torch.from_numpy(columns_P))
        return Pairs(counts_N, columns_P, scores.numpy())

    def _scores_of(self, x_ND: Tensor, counts_N: NDArray[np.int64], columns_P: Tensor) -> Tensor:
        ends = torch.from_numpy(np.concatenate([[0], np.cumsum(counts_N)]))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*CSR.*")  # "in beta state"
            nothing = torch.zeros(len(columns_P))
            size = (len(x_ND), len(self._centroids_KD))
            pattern = torch.sparse_csr_tensor(ends, columns_P, nothing, size=size, check_invariants=False)
            products = torch.sparse.sampled_addmm(pattern, x_ND, self._centroids_KD.T, beta=0.0)
        return products.values() - self._half_K.index_select(0, columns_P)


def _places(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """np.flatnonzero for a few flags among many, by eights: twice as fast."""
    eights = flags.reshape(-1).view(np.uint64)
    filled = np.flatnonzero(eights != 0)
    within = np.flatnonzero(eights[filled].view(np.bool_))
    places: NDArray[np.int64] = filled[within >> 3] * 8 + (within & 7)
    return places


def _basis(centred_KD: Tensor, size: int) -> Tensor:
    """Orthonormal, and close to the directions of largest variance; exactly those is not needed."""
    basis_DS = torch.linalg.qr(centred_KD[:size].T)[0]
    for _ in range(2):
        basis_DS = torch.linalg.qr(centred_KD.T @ (centred_KD @ basis_DS))[0]
    return basis_DS
