"""What is swept, and how: the settings of a sweep."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bownet.config import Settings


class SweepOptions(Settings):
    """What is swept, and how."""

    preset: str
    """The experiment that points change; --list of full.py shows them."""
    space: tuple[str, ...] = ()
    """Settings and their values: name=v1,v2 or, for random and optuna, name=low..high and name=low..high:log."""
    search: Literal["grid", "random", "optuna"] = "grid"
    """Every combination, --samples random ones, or --samples that Optuna proposes."""
    samples: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Trials of random and optuna."""
    seeds: Annotated[int, Field(ge=1, le=1000)] = 1
    """Each point is tried with so many seeds, from the experiment's own upwards."""
    scheduler: Literal["none", "asha"] = "none"
    """`asha` ends trials early whose nearest-neighbour proxy falls behind."""
    metric: str | None = None
    """Of the last network: what Optuna raises and the figure shows. None: the linear classifier's, of its last tap."""
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Trials at a time; None: as many as find CPUs or GPUs, which is also the most."""
    cpus_per_trial: Annotated[int, Field(ge=1, le=1024)] = 1
    """CPUs, and so threads, of a trial."""
    gpus_per_trial: Annotated[float, Field(ge=0, le=1)] | None = None
    """A share of a GPU; None: one where there are some."""

    @model_validator(mode="after")
    def _one_seed_for_a_search(self) -> SweepOptions:
        if self.search == "optuna" and self.seeds > 1:
            raise ValueError(f"seeds={self.seeds}: optuna judges each point by one trial, use 1")
        return self
