"""A look at all vectors before they are clustered, and the `Grid` they are put on.

Values on a grid have so few bits that sums of all vectors, and products of any two, are exact in double precision: the
order of a sum, the number of workers and the matrix library do not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MAX_WORDS = 65536  # words are stored as uint16
_CHUNK = 1024  # rows at a time: they stay in the processor's cache
NAMED = 8  # rows that an error names at most


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
            tuple(sorted(self.bad + other.bad)[:NAMED]),
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
    return Survey(len(x_ND), low.cpu(), high.cpu(), total, nonzero, len(bad), tuple(bad[:NAMED]), k, distinct)


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


def grid_for(seen: Survey, k: int, name: str = "vocabulary.size") -> Grid:
    """The grid of these vectors, or an error when they cannot become k words; `name` is that of the setting."""
    n, d = seen.rows, len(seen.low_D)
    check_size(k, n, name)
    if seen.bad_rows:
        raise ValueError(f"{not_finite(seen.bad_rows, n, seen.bad)}; the teacher's training has diverged")
    if k > 1 and seen.constant_features == d:
        raise ValueError(
            f"feature vectors: all {n} are the same, the teacher has collapsed; use another teacher or tap"
        )
    assert k == seen.k, "surveyed for another k"
    if k > len(seen.hashes):
        raise ValueError(
            f"{name}={k}: only {len(seen.hashes)} of the {n} feature vectors differ, "
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


def check_size(k: int, n: int, name: str = "vocabulary.size") -> None:
    if not 1 <= k <= MAX_WORDS:
        raise ValueError(f"{name}={k}: words are stored as uint16, use 1..{MAX_WORDS}")
    if k > n:
        raise ValueError(f"{name}={k}: there are only {n} feature vectors, use a smaller number or more images")


def not_finite(bad: int, n: int, rows: tuple[int, ...]) -> str:
    named = ", ".join(map(str, rows)) + (", ..." if bad > len(rows) else "")
    return f"feature vectors: {bad} of {n} are not finite (rows {named})"
