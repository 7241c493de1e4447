"""Settings of an evaluation: any weights, judged by any evaluators on any images."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from bownet.config.data import Data
from bownet.config.protocols import Protocols
from bownet.config.training import known_arch


class Evaluation(Protocols):
    """Which networks, which images, and the evaluators that judge the ones on the others."""

    name: str = "evaluation"
    """Name of the experiment in MLflow."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of everything that evaluators train, and of `random:` networks."""
    weights: tuple[str, ...] = ()
    """One row each: a key of the store, a file, torchvision:NAME, timm:NAME or random:ARCH."""
    arch: str | None = None
    """Architecture of files that others saved; None takes what their names and shapes tell."""
    data: Data = Data()

    @field_validator("arch")
    @classmethod
    def _known(cls, arch: str | None) -> str | None:
        return arch if arch is None else known_arch(arch)
