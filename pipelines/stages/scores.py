"""Writing a score: metrics under the evaluator's name, the protocol that made them, and what is behind them."""

from __future__ import annotations

from typing import Any

from evaluation.cards import completed
from evaluation.score import Score
from pipelines.stages.pictures import class_counts_of, count_of, data_of
from pipelines.store import Artifact, Workspace


def write_score(work: Workspace, evaluator: str, score: Score, card: dict[str, Any]) -> dict[str, Any]:
    """metrics.json, protocol.json and details.json; returns what the manifest says."""
    named = {f"{evaluator}/{name}": value for name, value in score.metrics.items()}
    work.write_json("metrics.json", named)
    work.write_json("protocol.json", completed(card))
    if score.details:
        work.write_json("details.json", score.details)
    return {"metrics": named}


def data_card(images: Artifact, **splits: str) -> dict[str, Any]:
    """What a card says of the images: the set, its hash, and the split that has the role of `train` or `test`."""
    return {
        "set": data_of(images).kind,
        "key": images.key,
        "image_size": data_of(images).image_size,
        **{
            role: {
                "split": split,
                "images": count_of(images, split),
                "classes": len(class_counts_of(images, split)),
            }
            for role, split in splits.items()
        },
    }
