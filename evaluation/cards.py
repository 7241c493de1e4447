"""Protocol cards: what exactly was done to get a score, beside the score."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from bownet.config import Fewshot, Linear, Voc07Svm
from evaluation.average_precision import MEANING
from evaluation.voc07_svm import CLASS_WEIGHT, COSTS, EPSILON, TOLERANCE


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


def voc07_svm_card(config: Voc07Svm, images: dict[str, Any], data_key: str, features: dict[str, str]) -> dict[str, Any]:
    """`images` is what their manifest says, `features` tells the pooling of each tap."""
    counts, resize = images["counts"], round(config.image_size * 8 / 7)
    return {
        "protocol": "one-vs-rest linear SVMs on frozen features",
        "train": {"split": "trainval07", "images": counts["train"], "data": data_key},
        "test": {"split": "test07", "images": counts["test"], "data": data_key},
        "left_out": f"{len(images['bad'])} images that cannot be read",
        "classes": len(images["categories"]),
        "view": f"short side {resize}, then squashed to {config.image_size}x{config.image_size}, no crop",
        "feature": features,
        "normalisation": f"x / (|x| + {EPSILON:g}) in double precision",
        "solver": {
            "name": "scikit-learn LinearSVC",
            "version": version("scikit-learn"),
            "penalty": "l2",
            "loss": "squared_hinge",
            "dual": True,
            "tol": TOLERANCE,
            "max_iter": config.max_iter,
            "class_weight": {str(label): weight for label, weight in CLASS_WEIGHT.items()},
            "input": "turned into the span of the training images where that is smaller: the same inner products",
        },
        "cost": {
            "list": config.costs,
            "values": list(COSTS[config.costs]),
            "chosen": f"per class, by AP ({MEANING['steps']}) in {config.folds} folds of trainval, then refit on all",
            "folds": "StratifiedKFold, shuffled with the seed; of equally good costs the smallest",
        },
        "difficult": "an image with only difficult objects of a class is a negative in training, left out of its test",
        "metric": f"AP in percent, {MEANING['area']}; map is the mean over classes",
        "frozen": "the whole backbone, batch norm in evaluation mode",
        "seed": config.seed,
    }
