"""Protocol cards: what exactly was done to get a score, beside the score, in one form for all evaluators.

A card is plain JSON. `card` makes one, so that every evaluator answers the same questions; `completed` adds the
versions of what computed it, which are no part of any key. evaluation/paper.py compares cards.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from bownet.config import Fewshot, Finetune, Linear, Settings

Card = dict[str, Any]

FORMAT = 1
PACKAGES = ("torch", "torchvision", "scikit-learn", "bownet-on-ray")
FROZEN = "the whole network, batch norm in evaluation mode"
PLAIN = "the plain image, no augmentation"
CROPS = "random resized crop, aspect 3/4 to 4/3, and flip"


def card(
    evaluator: str,
    protocol: str,
    *,
    data: Mapping[str, Any],
    view: Mapping[str, str],
    pooling: Mapping[str, str],
    normalisation: str,
    solver: Mapping[str, Any],
    metric: str,
    frozen: str,
    seeds: Mapping[str, int],
    trials: int = 1,
    difficult: str | None = None,
    **more: Any,
) -> Card:
    """The card of a result. Each argument is an answer that somebody who repeats it will need.

    `data` says of `train` and `test` which split they are, how many images and classes; and the set's name and hash.
    `pooling` is by tap and tells shapes, so it differs from network to network.
    """
    return {
        "format": FORMAT,
        "evaluator": evaluator,
        "protocol": protocol,
        "data": dict(data),
        "view": dict(view),
        "pooling": dict(pooling),
        "normalisation": normalisation,
        "solver": dict(solver),
        "metric": metric,
        "difficult": difficult,
        "seeds": dict(seeds),
        "trials": trials,
        "frozen": frozen,
        **more,
    }


def completed(card: Mapping[str, Any]) -> Card:
    """With the versions of this machine's packages."""
    return {**card, "versions": versions()}


def versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def linear_card(config: Linear, seed: int, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "linear",
        "linear classifier on cached frozen features",
        data=data,
        view={"train": PLAIN, "test": PLAIN},
        pooling=pooling,
        normalisation="each value by its mean and deviation over the training images" if config.batch_norm else "none",
        solver={"name": "SGD", **_plain(config, "crop_area")},
        metric="top-1 and top-5 accuracy in percent after the last epoch",
        frozen=FROZEN,
        seeds={"classifier": seed},
    )


def online_linear_card(config: Linear, seed: int, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "linear",
        "linear classifiers on the frozen network, all taps in one pass",
        data=data,
        view={"train": CROPS, "test": "centre crop"},
        pooling=pooling,
        normalisation="batch norm without scale and shift, moving statistics in test" if config.batch_norm else "none",
        solver={"name": "SGD", **_plain(config)},
        metric="top-1 and top-5 accuracy in percent after the last epoch",
        frozen=f"{FROZEN}; sha256 of all its tensors compared before and after",
        seeds={"classifier": seed},
    )


def fewshot_card(config: Fewshot, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "fewshot",
        "few-shot episodes with cosine prototypes",
        data=data,
        view={"test": PLAIN},
        pooling=pooling,
        normalisation="L2 of each support and query feature, and of the prototype, the mean of the support features",
        solver={
            "name": "nearest prototype by cosine",
            "sampling": "without replacement in an episode",
            **_plain(config),
        },
        metric="mean accuracy over episodes in percent, 95% interval 1.96 std / sqrt(episodes)",
        frozen=FROZEN,
        seeds={"episodes": config.seed},
    )


def finetune_card(config: Finetune, seed: int, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "finetune",
        "fine-tuning of the whole network with a share of the labels",
        data=data,
        view={"train": CROPS, "test": "centre crop"},
        pooling=pooling,
        normalisation="none",
        solver={"name": "SGD, momentum 0.9", "labels": "the same share of every class, one at least", **_plain(config)},
        metric="top-1 and top-5 accuracy in percent after the last epoch",
        frozen="nothing; batch norm in training mode",
        seeds={"labels": seed, "training": seed},
    )


def _plain(config: Settings, *left_out: str) -> Card:
    """Settings as JSON values; seeds have a place of their own."""
    return {k: v for k, v in config.model_dump(mode="json").items() if k not in ("seed", *left_out)}
