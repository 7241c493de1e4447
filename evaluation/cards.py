"""Protocol cards: what exactly was done to get a score, beside the score."""

from __future__ import annotations

from typing import Any

from bownet.config import Fewshot, Linear


def linear_card(config: Linear, seed: int, counts: dict[str, int], data_key: str, channels: int) -> dict[str, Any]:
    return {
        "protocol": "linear classifier on cached frozen features",
        "train": {"split": "train", "images": counts["train"], "data": data_key},
        "test": {"split": "test", "images": counts["test"], "data": data_key},
        "view": "the plain image, no augmentation",
        "feature": f"globally pooled, {channels} values",
        "solver": {"name": "SGD", **config.model_dump()},
        "metric": "top-1 accuracy in percent after the last epoch",
        "frozen": "the whole backbone, batch norm in evaluation mode",
        "seed": seed,
    }


def fewshot_card(config: Fewshot, split: str, counts: dict[str, int], data_key: str, channels: int) -> dict[str, Any]:
    return {
        "protocol": "few-shot episodes with cosine prototypes",
        "test": {"split": split, "images": counts[split], "data": data_key},
        "view": "the plain image, no augmentation",
        "feature": f"globally pooled, {channels} values, L2-normalised",
        "prototype": "mean of the normalised support features, normalised",
        "episodes": config.model_dump(),
        "sampling": "without replacement within an episode",
        "metric": "mean accuracy over episodes in percent, 95% interval 1.96 std / sqrt(episodes)",
        "frozen": "the whole backbone, batch norm in evaluation mode",
    }
