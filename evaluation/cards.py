"""Protocol cards: what exactly was done to get a score, beside the score."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, TypedDict

from bownet.config import Fewshot, Knn, Linear, Retrieval, Voc07Svm
from evaluation.average_precision import MEANING
from evaluation.voc07_svm import CLASS_WEIGHT, COSTS, EPSILON, TOLERANCE

FROZEN = "the whole backbone, batch norm in evaluation mode"
VIEW = "the plain image, no augmentation"


class Split(TypedDict):
    """Which images: the key of the data, the name of the split in it, and how many there are."""

    split: str
    images: int
    data: str


def linear_card(config: Linear, seed: int, train: Split, test: Split, pooling: Mapping[str, str]) -> dict[str, Any]:
    """`pooling` says of each tap what was done to its map."""
    return {
        "protocol": "linear classifier on cached frozen features",
        "train": train,
        "test": test,
        "view": VIEW,
        "feature": dict(pooling),
        "normalisation": "each value standardised over the training set" if config.batch_norm else "none",
        "solver": {
            "name": "SGD on softmax cross-entropy, weight decay on weights and bias, one classifier for each feature",
            **config.model_dump(exclude={"features", "taps", "pool", "crop_area", "batch_norm"}),
        },
        "metric": "top-1 and top-5 accuracy in percent after the last epoch",
        "frozen": FROZEN,
        "seed": seed,
    }


def fewshot_card(config: Fewshot, test: Split, sha256: str, pooling: str) -> dict[str, Any]:
    """`sha256` is of the names and labels of the images, in order: with the settings it determines the episodes."""
    return {
        "protocol": "few-shot episodes with cosine prototypes",
        "test": {**test, "sha256": sha256},
        "view": VIEW,
        "feature": pooling,
        "normalisation": "L2, of every feature and again of the prototype",
        "solver": {"name": "prototype: mean of the normalised support features, normalised; the highest cosine"},
        "episodes": config.model_dump(),
        "sampling": "without replacement within an episode",
        "metric": "mean accuracy over episodes in percent, 95% interval 1.96 std / sqrt(episodes)",
        "frozen": FROZEN,
        "seed": config.seed,
    }


def knn_card(config: Knn, train: Split, test: Split, pooling: str) -> dict[str, Any]:
    return {
        "protocol": "weighted nearest neighbours on cached frozen features",
        "train": train,
        "test": test,
        "view": VIEW,
        "feature": pooling,
        "normalisation": "L2",
        "solver": {"name": "votes of the k nearest training images, exp(cosine / temperature)", **config.model_dump()},
        "metric": "top-1 accuracy in percent",
        "frozen": FROZEN,
        "seed": None,
    }


def retrieval_card(config: Retrieval, train: Split, test: Split, pooling: str) -> dict[str, Any]:
    return {
        "protocol": "retrieval of images of the same class by cached frozen features",
        "train": train,
        "test": test,
        "view": VIEW,
        "feature": pooling,
        "normalisation": "L2",
        "solver": {"name": "every test image ranks all training images by the cosine", **config.model_dump()},
        "metric": "mean over queries of the non-interpolated average precision, and of the precision among the first "
        "answers, in percent; equal similarities share their rank",
        "frozen": FROZEN,
        "seed": None,
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
