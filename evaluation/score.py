"""What an evaluator gives: numbers to compare, and what is behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Score:
    """Names of metrics are without the evaluator's own, such as `conv4/top1` of `linear/conv4/top1`."""

    metrics: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    """JSON values that explain the metrics: accuracy by class, a confusion matrix, the costs that were chosen."""
