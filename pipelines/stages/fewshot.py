"""fewshot: episodes on features of a frozen network; two results on the same episodes can be compared in pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bownet.config import Fewshot
from evaluation.cards import fewshot_card
from evaluation.episodes import check_enough_images
from evaluation.fewshot import Difference, compare_paired, fewshot_accuracies, fewshot_score
from pipelines.stages.features import read_features
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import class_counts_of, fewshot_split
from pipelines.stages.scoring import (
    common_labels,
    data_card,
    label_obstacle,
    names_and_labels_sha256,
    on_worker,
    write_score,
)
from pipelines.store import Artifact, Estimate, Workspace

EPISODES = "episodes.npy"  # accuracy of every episode, a row for each number of shots


@dataclass(frozen=True)
class FewshotScore(ModelStage):
    fewshot: Fewshot
    images: Artifact
    features: Artifact

    name = "fewshot"
    title = "few-shot"
    version = 4

    @staticmethod
    def obstacle(images: Artifact, fewshot: Fewshot) -> str | None:
        """Why these images cannot be scored so, known before anything is trained; None if they can."""
        split = fewshot_split(images)
        if reason := label_obstacle(images, split):
            return f"few-shot is left out: {reason}"
        try:
            check_enough_images(class_counts_of(images, split), fewshot)
        except ValueError as error:
            return f"few-shot is left out: {error}"
        return None

    def estimate(self) -> Estimate:
        return Estimate(f"{len(self.fewshot.shots)} x {self.fewshot.episodes} episodes")

    def build(self, work: Workspace) -> dict[str, Any]:
        split, info = fewshot_split(self.images), self.features.info
        _, (labels,) = common_labels(self.images, split)
        accuracies = on_worker(work, _accuracies, self.features, split, labels, self.fewshot)
        work.write_npy(EPISODES, np.stack([accuracy_E.numpy() for accuracy_E in accuracies.values()]))
        data = data_card(self.images, test=split)
        data["test"]["sha256"] = names_and_labels_sha256(self.images, split)
        card = fewshot_card(self.fewshot, data, {info["pooled"]: info["pooling"][info["pooled"]]})
        return write_score(work, "fewshot", fewshot_score(accuracies), card)


def paired_comparison(a: Artifact, b: Artifact) -> dict[int, Difference]:
    """How much better `a` is than `b`, in points, for each number of shots: two results on the same episodes."""
    seen = [_seen(result.read_json("protocol.json")) for result in (a, b)]
    for name, value in seen[0].items():
        if seen[1][name] != value:
            raise ValueError(
                f"{a.ref} and {b.ref} saw different episodes ({name}: {value} and {seen[1][name]}); "
                "compare results of the same images and few-shot settings"
            )
    rows = [torch.from_numpy(result.read_npy(EPISODES, mmap=False)) for result in (a, b)]
    return {shots: compare_paired(rows[0][i], rows[1][i]) for i, shots in enumerate(seen[0]["fewshot.shots"])}


def _seen(card: dict[str, Any]) -> dict[str, Any]:
    """What episodes depend on."""
    test, drawn = card["data"]["test"], ("shots", "ways", "queries", "episodes")
    settings = {f"fewshot.{name}": card["solver"][name] for name in drawn} | {"fewshot.seed": card["seeds"]["episodes"]}
    return {"split": test["split"], "images and labels": test["sha256"][:12], **settings}


def _accuracies(features: Artifact, split: str, labels: Tensor, fewshot: Fewshot) -> dict[int, Tensor]:
    return fewshot_accuracies(read_features(features, split, features.info["pooled"]), labels, fewshot)
