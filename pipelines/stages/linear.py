"""linear: classifiers on cached features of a frozen network, one for each tap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from bownet.config import Linear
from evaluation.cards import linear_card
from evaluation.linear import linear_score
from evaluation.score import Score
from pipelines.stages.features import read_features
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.scoring import common_labels, data_card, label_obstacle, on_worker, write_score
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class LinearScore(ModelStage):
    linear: Linear
    seed: int
    images: Artifact
    features: Artifact

    name = "linear"
    title = "linear"
    version = 4

    @staticmethod
    def obstacle(images: Artifact, linear: Linear) -> str | None:
        """Why these images cannot be scored so, known before anything is trained; None if they can."""
        reason = label_obstacle(images, "train", "test")
        return f"linear is left out: {reason}" if reason else None

    def config(self) -> dict[str, Any]:
        """Without what the features were made by, and what is done online only."""
        return {**super().config(), "linear": self.linear.model_dump(exclude={"features", "pool", "crop_area"})}

    def estimate(self) -> Estimate:
        return Estimate(f"{self.linear.epochs} epochs on cached features")

    def build(self, work: Workspace) -> dict[str, Any]:
        info = self.features.info
        taps = self.linear.taps or (info["pooled"],)
        classes, labels = common_labels(self.images, "train", "test")
        score = on_worker(work, _score, self.features, taps, labels, self.linear, self.seed)
        pooling = {tap: info["pooling"][tap] for tap in taps}
        linear = as_used(self.linear, taps, info["pooled"])
        card = linear_card(linear, self.seed, data_card(self.images, train="train", test="test"), pooling)
        return write_score(work, "linear", replace(score, details={"classes": classes} | score.details), card)


def as_used(linear: Linear, taps: Sequence[str], pooled: str) -> Linear:
    """`pool` is of maps: without one, whatever it says, there is one value a channel."""
    return linear if set(taps) - {pooled} else linear.model_copy(update={"pool": "global"})


def _score(features: Artifact, taps: tuple[str, ...], labels: list[Tensor], linear: Linear, seed: int) -> Score:
    cached = {tap: (read_features(features, "train", tap), read_features(features, "test", tap)) for tap in taps}
    return linear_score(cached, labels[0], labels[1], linear, seed, features.info["pooled"])
