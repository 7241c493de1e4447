"""comparison: two networks on the same few-shot episodes; the mean of their differences and its 95% interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.stages.fewshot import paired_comparison
from pipelines.stages.model_stage import ModelStage
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class FewshotComparison(ModelStage):
    """Episodes come from the seed, so that chance which both networks share cancels out."""

    first: Artifact  # scores, with the accuracy of every episode
    score: Artifact

    name = "fewshot-comparison"
    title = "comparison"
    version = 1

    def estimate(self) -> Estimate:
        return Estimate("episodes of two scores")

    def build(self, work: Workspace) -> dict[str, Any]:
        """`1shot`, ...: how much better `score` is than `first`."""
        found = paired_comparison(self.score, self.first)
        differences = {f"{shots}shot": difference._asdict() for shots, difference in found.items()}
        work.write_json("comparison.json", differences)
        return {"differences": differences}
