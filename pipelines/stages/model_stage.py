"""A stage that belongs to one model of the results table, such as "BoWNet x2"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pipelines.store import NOT_IN_KEY, Stage


@dataclass(frozen=True)
class ModelStage(Stage):
    """The model's name is for people and for tracking; two models may share an artifact."""

    title: ClassVar[str]  # what the stage does, such as "training"
    model: str = field(metadata=NOT_IN_KEY, kw_only=True)

    @property
    def curves(self) -> str | None:
        """What tracking calls the epochs in its history.json, such as "train"; None for a stage without."""
        return None

    @property
    def label(self) -> str:
        return f"{self.model}: {self.title}"
