"""Intervals over seeds, against numbers computed by hand."""

import pytest

from evaluation.interval import Interval, interval


def test_three_seeds_by_hand() -> None:
    made = interval([1.0, 2.0, 6.0])  # mean 3, s = sqrt((4 + 1 + 9) / 2) = 2.6458, t = 4.3027
    assert made.mean == 3
    assert made.half == pytest.approx(4.302653 * 2.645751 / 3**0.5, rel=1e-6)
    assert (made.low, made.high) == (made.mean - made.half, made.mean + made.half)


def test_one_seed_has_no_spread() -> None:
    made = interval([7.5])
    assert made == Interval(7.5, None, 1)
    assert (made.low, made.high) == (float("-inf"), float("inf"))
    with pytest.raises(ValueError, match="no number"):
        interval([])
