"""Complete experiments by name: every row of the paper's tables that can be trained, and small ones to begin with.

A preset is a function without arguments that returns an `Experiment`. Its docstring states what it is, its command and
its cost, measured or "not yet run". One file for each data set;
pipelines/paper/ holds the figures to compare with.
"""

from __future__ import annotations

from collections.abc import Callable

from bownet.config import Experiment
from pipelines.presets import cifar10, cifar100, embedded, imagenet, imagenet_small, miniimagenet

PRESETS: dict[str, Callable[[], Experiment]] = {
    **embedded.PRESETS,
    **cifar10.PRESETS,
    **cifar100.PRESETS,
    **miniimagenet.PRESETS,
    **imagenet.PRESETS,
    **imagenet_small.PRESETS,
}


def first_line(name: str) -> str:
    """What a preset is, in a line."""
    return (PRESETS[name].__doc__ or "").strip().splitlines()[0]
