"""When a run has failed: its loss or its gradients are no numbers, or its loss has grown far beyond where it began."""

from __future__ import annotations

import math

from bownet.training.checkpoint import Record
from bownet.training.learner import GRADIENT_NORM

STEPS_TO_JUDGE = 50  # an untrained network may jump at first, and a few batches are no mean


class Diverged(ValueError):
    """A run without hope; `good` of its epochs were as they should be."""

    good = 0


def diverged(means: Record, epoch: int, step: str, lr: float) -> Diverged:
    """Names when, at which rate and what is left; `epoch` counts from 0."""
    last = f"the last good checkpoint is the end of epoch {epoch}" if epoch else "there is no good checkpoint before it"
    error = Diverged(
        f"loss={means['loss']:.4g}, {GRADIENT_NORM}={means[GRADIENT_NORM]:.4g} in epoch {epoch + 1}, step {step}, at "
        f"lr={lr:g}: it diverged, use a smaller lr; an optimiser has warmup_epochs and clip, too; {last}"
    )
    error.good = epoch
    return error


def has_failed(means: Record, start: float, steps: int, complete: bool, before: int, may_rise: bool = False) -> bool:
    """Whether means over `steps` of an epoch, `before` which others were taken, are those of a run without hope.

    Not finite; or a loss above three times that of the first step, and above it by one at least. The second rule
    waits for a mean over 50 steps, or over an epoch (`complete`) that ends 50 steps or more after the start, and is not
    for tasks whose loss `may_rise`: that of a linear classifier on long features does until the rate drops.
    """
    if not (math.isfinite(means["loss"]) and math.isfinite(means[GRADIENT_NORM])):
        return True
    judged = steps >= STEPS_TO_JUDGE or (complete and before + steps >= STEPS_TO_JUDGE)
    return judged and not may_rise and means["loss"] > start + max(1.0, 2 * abs(start))
