"""A moving average of a task's weights, and of its batch norm's statistics.

The statistics are averaged like the weights: those of the last step belong to weights that, at a high rate, are far
from their average, and exact ones would take another pass over the images.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Average:
    def __init__(self, task: nn.Module, decay: float) -> None:
        self._decay = decay
        self._steps = 0
        self._live = dict(task.state_dict())  # shares its memory with the task's weights
        self._mean = {name: value.clone() for name, value in self._live.items()}
        self._averaged = [name for name, value in self._live.items() if value.is_floating_point()]
        self._counters = [name for name, value in self._live.items() if not value.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        """One step on. Early steps decay faster, so that short runs are not left with their initial weights."""
        self._steps += 1
        decay = min(self._decay, (1 + self._steps) / (10 + self._steps))
        mean, live = ([values[name] for name in self._averaged] for values in (self._mean, self._live))
        torch._foreach_lerp_(mean, live, 1 - decay)
        for name in self._counters:
            self._mean[name].copy_(self._live[name])

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within it the task has the averaged weights."""
        kept = {name: value.clone() for name, value in self._live.items()}
        self.keep()
        try:
            yield
        finally:
            _copy(kept, self._live)

    def keep(self) -> None:
        """Replace the task's weights by their average."""
        _copy(self._mean, self._live)

    def state(self) -> dict[str, Any]:
        return {"steps": self._steps, "mean": self._mean}

    def load(self, state: dict[str, Any]) -> None:
        self._steps = state["steps"]
        _copy(state["mean"], self._mean)


@torch.no_grad()
def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, value in target.items():
        value.copy_(source[name])
