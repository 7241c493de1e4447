"""knn: the nearest training images vote for the class of each test image, by features of a frozen network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from bownet.config import Knn
from evaluation.cards import knn_card
from evaluation.knn import check_neighbours, knn_score
from evaluation.score import Score
from pipelines.stages.features import read_features
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of
from pipelines.stages.scoring import common_labels, data_card, label_obstacle, on_worker, write_score
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class KnnScore(ModelStage):
    knn: Knn
    images: Artifact
    features: Artifact

    name = "knn"
    title = "k-NN"
    version = 3

    @staticmethod
    def obstacle(images: Artifact, knn: Knn) -> str | None:
        """Why these images cannot be scored so, known before anything is trained; None if they can."""
        reason = label_obstacle(images, "train", "test")
        if not reason:
            try:
                check_neighbours(knn.neighbours, count_of(images, "train"))
            except ValueError as error:
                reason = str(error)
        return f"k-NN is left out: {reason}" if reason else None

    def estimate(self) -> Estimate:
        return Estimate(f"{count_of(self.images, 'test')} x {count_of(self.images, 'train')} images")

    def build(self, work: Workspace) -> dict[str, Any]:
        info = self.features.info
        classes, labels = common_labels(self.images, "train", "test")
        score = on_worker(work, _score, self.features, labels, self.knn)
        data = data_card(self.images, train="train", test="test")
        card = knn_card(self.knn, data, {info["pooled"]: info["pooling"][info["pooled"]]})
        return write_score(work, "knn", replace(score, details={"classes": classes} | score.details), card)


def _score(features: Artifact, labels: list[Tensor], knn: Knn) -> Score:
    train, test = (read_features(features, split, features.info["pooled"]) for split in ("train", "test"))
    return knn_score(train, labels[0], test, labels[1], knn)
