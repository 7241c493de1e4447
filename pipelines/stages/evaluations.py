"""linear and fewshot: scores of frozen features, each an artifact of metrics and the protocol that made them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bownet.config import Fewshot, Linear
from evaluation.cards import fewshot_card, linear_card
from evaluation.fewshot import check_enough_images, fewshot_accuracy
from evaluation.linear import linear_accuracy
from evaluation.score import Score
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import class_counts_of, count_of, fewshot_split, labels_of
from pipelines.stages.scores import data_card, write_score
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class LinearScore(ModelStage):
    linear: Linear
    seed: int
    images: Artifact
    features: Artifact

    name = "linear"
    title = "linear"
    version = 1

    @staticmethod
    def obstacle(images: Artifact, linear: Linear) -> str | None:
        """Why these images cannot be scored so, known before anything is trained; None if they can."""
        for split in ("train", "test"):
            if not count_of(images, split):
                return f"linear is left out: there are no {split} images"
            if len(class_counts_of(images, split)) < 2:
                return f"linear is left out: the {split} images {_labels(images, split)}"
        return None

    def estimate(self) -> Estimate:
        return Estimate(f"{self.linear.epochs} epochs on cached features")

    def build(self, work: Workspace) -> dict[str, Any]:
        train, train_labels = load_features(self.images, self.features, "train")
        test, test_labels = load_features(self.images, self.features, "test")
        metrics = on_worker(work, linear_accuracy, train, train_labels, test, test_labels, self.linear, self.seed)
        pooling = {"pooled": f"one value a channel, {train.shape[1]} values"}
        card = linear_card(self.linear, self.seed, data_card(self.images, train="train", test="test"), pooling)
        return write_score(work, "linear", Score(dict(metrics)), card)


@dataclass(frozen=True)
class FewshotScore(ModelStage):
    fewshot: Fewshot
    images: Artifact
    features: Artifact

    name = "fewshot"
    title = "few-shot"
    version = 1

    @staticmethod
    def obstacle(images: Artifact, fewshot: Fewshot) -> str | None:
        split = fewshot_split(images)
        if not (counts := class_counts_of(images, split)):
            return f"few-shot is left out: the {split} images {_labels(images, split)}"
        try:
            check_enough_images(counts, fewshot)
        except ValueError as error:
            return f"few-shot is left out: {error}"
        return None

    def estimate(self) -> Estimate:
        return Estimate(f"{len(self.fewshot.shots)} x {self.fewshot.episodes} episodes")

    def build(self, work: Workspace) -> dict[str, Any]:
        split = fewshot_split(self.images)
        features, labels = load_features(self.images, self.features, split)
        metrics = on_worker(work, fewshot_accuracy, features, labels, self.fewshot)
        pooling = {"pooled": f"one value a channel, {features.shape[1]} values"}
        card = fewshot_card(self.fewshot, data_card(self.images, test=split), pooling)
        return write_score(work, "fewshot", Score(dict(metrics)), card)


def _labels(images: Artifact, split: str) -> str:
    return "are all of one class" if class_counts_of(images, split) else "have no class labels"


def load_features(images: Artifact, features: Artifact, split: str) -> tuple[Tensor, Tensor]:
    """Features and labels of a split; labels are renumbered 0..C-1 in the order of the categories."""
    labels = torch.from_numpy(labels_of(images, split))
    return torch.from_numpy(features.read_npy(f"{split}.npy", mmap=False)), torch.unique(labels, return_inverse=True)[1]


def on_worker(work: Workspace, score: Callable[..., Any], *arguments: Any) -> Any:
    """Run an evaluator as a Ray task with as many threads as a training worker has."""
    import ray

    threads = work.machine.cpus_per_worker

    def run(*arguments: Any) -> Any:
        torch.set_num_threads(threads)
        return score(*arguments)

    return ray.get(ray.remote(num_cpus=threads)(run).remote(*arguments))
