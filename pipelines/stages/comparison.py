"""comparison: two networks on the same few-shot episodes; the mean of their differences and its 95% interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bownet.config import Fewshot
from evaluation.fewshot import compare_paired, fewshot_accuracies
from pipelines.stages.evaluations import load_features, on_worker
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import fewshot_split
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class FewshotComparison(ModelStage):
    """Episodes come from the seed, so that chance which both networks share cancels out."""

    fewshot: Fewshot
    images: Artifact
    first_features: Artifact
    features: Artifact

    name = "fewshot-comparison"
    title = "comparison"
    version = 1

    def estimate(self) -> Estimate:
        return Estimate(f"{len(self.fewshot.shots)} x {self.fewshot.episodes} episodes, twice")

    def build(self, work: Workspace) -> dict[str, Any]:
        split = fewshot_split(self.images)
        one, labels = load_features(self.images, self.first_features, split)
        other, _ = load_features(self.images, self.features, split)
        differences = on_worker(work, _compare, other, one, labels, self.fewshot)
        work.write_json("comparison.json", differences)
        return {"differences": differences}


def _compare(a_ND: Tensor, b_ND: Tensor, labels_N: Tensor, config: Fewshot) -> dict[str, dict[str, float]]:
    """`1shot`, ...: how much better a is than b."""
    a, b = (fewshot_accuracies(f_ND, labels_N, config) for f_ND in (a_ND, b_ND))
    return {f"{shots}shot": compare_paired(a[shots], b[shots])._asdict() for shots in config.shots}


def comparison(first: Artifact, score: Artifact, name: str) -> FewshotComparison:
    """Of two few-shot scores that were made by the same settings on the same images."""
    stage, other = first.stage, score.stage
    assert stage is not None
    assert other is not None
    one, two = stage.inputs(), other.inputs()
    fewshot: Fewshot = other.config()["fewshot"]
    return FewshotComparison(fewshot, two["images"], one["features"], two["features"], model=name)
