"""A line for each trial that ends, as Ray Tune tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import tune
from rich.console import Console
from rich.markup import escape

from pipelines.sweeps.space import label_of


class Telling(tune.Callback):
    """Prints a line when a trial ends, and keeps those of the ones that were ended early."""

    def __init__(self, console: Console | None, total: int) -> None:
        self._console, self._total, self._ended = console, total, 0
        self.early: list[str] = []

    def __reduce__(self) -> tuple[type[Telling], tuple[None, int]]:
        return Telling, (None, self._total)  # Tune keeps a copy of the sweep's settings; a console cannot be copied

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        last = trial.last_result or {}
        if "run" in last:
            self._tell(trial, "done")
        else:
            self.early.append(self._tell(trial, f"ended early, at epoch {last.get('epoch')}"))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._tell(trial, "failed")  # the reason is known when all trials have ended

    def _tell(self, trial: Any, how: str) -> str:
        self._ended += 1
        line = f"{name_of(trial.config)}: {how}"
        if self._console is not None:
            self._console.print(f"\\[{self._ended}/{self._total}] {escape(line)}", highlight=False, soft_wrap=True)
        return line


def name_of(config: Mapping[str, Any]) -> str:
    """What people call a trial."""
    point = config.get("point")
    return f"{point['label']}, seed {point['seed']}" if point else label_of(config)
