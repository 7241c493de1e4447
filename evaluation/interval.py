"""Numbers of several seeds go in; their mean and half of its 95% interval come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev


@dataclass(frozen=True)
class Interval:
    """`half` is None for a single number, which tells nothing of its spread."""

    mean: float
    half: float | None
    count: int

    @property
    def low(self) -> float:
        return self.mean - (self.half if self.half is not None else float("inf"))

    @property
    def high(self) -> float:
        return self.mean + (self.half if self.half is not None else float("inf"))


def interval(values: Sequence[float]) -> Interval:
    """Student's t: mean ± t(0.975, n-1) · s / √n, for few seeds whose numbers are about normal."""
    if not values:
        raise ValueError("values=[]: no number, no mean; give one or more")
    n = len(values)
    if n == 1:
        return Interval(float(values[0]), None, 1)
    from scipy.stats import t  # slow to import

    return Interval(mean(values), float(t.ppf(0.975, n - 1)) * stdev(values) / n**0.5, n)
