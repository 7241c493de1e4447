"""Protocol cards: what exactly was done to get a score, beside the score, in one form for all evaluators.

A card is plain JSON. `card` makes one, so that every evaluator answers the same questions; `completed` adds the
versions of what computed it, which are no part of any key. evaluation/paper.py compares cards.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bownet.config import Fewshot, Finetune, Knn, Linear, Retrieval, Settings, Voc07Svm
from bownet.images.views import RESIZE
from evaluation.average_precision import MEANING
from evaluation.linear import NORM_EPSILON
from evaluation.voc07_svm import CLASS_WEIGHT, COSTS, EPSILON, TOLERANCE

Card = dict[str, Any]

FORMAT = 1
PACKAGES = ("torch", "torchvision", "numpy", "Pillow", "scikit-learn", "bownet-on-ray")
FROZEN = "the whole network, batch norm in evaluation mode"
FILTER = "8-bit RGB, Pillow's bilinear"
CROPS = "random resized crop, aspect 3/4 to 4/3, and flip"
WHOLE_BATCH, OWN_IMAGES = "the whole batch", "each worker's own images"
PARTLY = f"{OWN_IMAGES} in one part of the training, {WHOLE_BATCH} in another"


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
    """With the versions of what computed it on this machine."""
    by_detectron2 = card["solver"].get("backend") == "detectron2"
    return {**card, "versions": versions(*PACKAGES, *(["detectron2"] * by_detectron2))}


def versions(*packages: str) -> dict[str, str]:
    """Of Python and of packages; a checkout on the path, which nothing has installed, may tell its own."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = str(getattr(importlib.import_module(package), "__version__", "not said"))
    return found


def workers_of(records: Iterable[Mapping[str, float]]) -> tuple[int, ...]:
    """How many workers trained, by the records of the training: one number, or more where it changed meanwhile."""
    return tuple(dict.fromkeys(int(record["workers"]) for record in records))


def on_gpus(records: Iterable[Mapping[str, float]]) -> bool:
    """Whether they trained on GPUs, by the same records: the machine that ends a run may be another one."""
    return any(record.get("gpu") or "peak_gpu_memory_gb" in record for record in records)


def told(workers: Sequence[int]) -> int | list[int]:
    """As cards have it."""
    return workers[0] if len(workers) == 1 else list(workers)


def norm_statistics(workers: Sequence[int], gpu: bool) -> str:
    """Which images a batch norm in training sees: they are shared on GPUs only, torch has it for no other."""
    if gpu or set(workers) == {1}:
        return WHOLE_BATCH
    return PARTLY if 1 in workers else OWN_IMAGES


def plain_view(data: Mapping[str, Any]) -> str:
    """What a network sees of an image that is not augmented; `data` says how images are stored."""
    size = data["image_size"]
    if data["storage"] == "raw":
        return f"short side {size}, centre crop {size}x{size}: images of that size as they are"
    return f"short side {round(size * RESIZE)}, centre crop {size}x{size}"


def random_view(data: Mapping[str, Any]) -> str:
    """What it sees in training."""
    return f"{CROPS}, of the " + (f"test's {plain_view(data)}" if data["storage"] == "raw" else "whole image")


def squashed_view(size: int) -> str:
    """What SVMs on VOC07 see."""
    return f"short side {round(size * RESIZE)}, then squashed to {size}x{size}, no crop"


def resize(data: Mapping[str, Any]) -> str:
    """How images come to the size of a view."""
    if data["storage"] == "raw":
        return f"{FILTER}, of the whole decoded image when it was stored; random crops in floating point, antialiased"
    return f"{FILTER}; a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where the view needs no more"


def linear_card(config: Linear, seed: int, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "linear",
        "linear classifier on cached frozen features",
        data=data,
        view={"train": plain_view(data), "test": plain_view(data), "resize": resize(data)},
        pooling=pooling,
        normalisation=f"(x - mean) / sqrt(variance + {NORM_EPSILON:g}) of each value, over all training images"
        if config.batch_norm
        else "none",
        solver={
            "name": "SGD on softmax cross-entropy, weight decay on weights and bias, one classifier for each feature",
            **_plain(config, "taps", "crop_area"),
        },
        metric="top-1 and top-5 accuracy in percent after the last epoch",
        frozen=FROZEN,
        seeds={"classifier": seed},
    )


def online_linear_card(
    config: Linear,
    seed: int,
    data: Mapping[str, Any],
    pooling: Mapping[str, str],
    workers: Sequence[int] = (1,),
    gpu: bool = False,
) -> Card:
    """`workers` is how many trained, as `workers_of` gives it."""
    norms = f"batch norm without scale and shift, over {norm_statistics(workers, gpu)}, moving statistics in test"
    return card(
        "linear",
        "linear classifiers on the frozen network, all taps in one pass",
        data=data,
        view={"train": random_view(data), "test": plain_view(data), "resize": resize(data)},
        pooling=pooling,
        normalisation=norms if config.batch_norm else "none",
        solver={"name": "SGD", "workers": told(workers), **_plain(config)},
        metric="top-1 and top-5 accuracy in percent after the last epoch",
        frozen=f"{FROZEN}; sha256 of all its tensors compared before and after",
        seeds={"classifier": seed},
    )


def transfer_card(
    config: Linear,
    seed: int,
    data: Mapping[str, Any],
    pooling: Mapping[str, str],
    workers: Sequence[int] = (1,),
    gpu: bool = False,
) -> Card:
    """As online on the network's own set, which `data` says is another one here."""
    made = online_linear_card(config, seed, data, pooling, workers, gpu)
    protocol = "linear classifiers on the frozen network, on another set than it was trained on, all taps in one pass"
    return {**made, "evaluator": "transfer", "protocol": protocol}


def fewshot_card(config: Fewshot, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "fewshot",
        "few-shot episodes with cosine prototypes",
        data=data,
        view={"test": plain_view(data), "resize": resize(data)},
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


def knn_card(config: Knn, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "knn",
        "weighted nearest neighbours on cached frozen features",
        data=data,
        view={"train": plain_view(data), "test": plain_view(data), "resize": resize(data)},
        pooling=pooling,
        normalisation="L2",
        solver={"name": "votes of the k nearest training images, exp(cosine / temperature)", **_plain(config)},
        metric="top-1 accuracy in percent",
        frozen=FROZEN,
        seeds={},
    )


def retrieval_card(config: Retrieval, data: Mapping[str, Any], pooling: Mapping[str, str]) -> Card:
    return card(
        "retrieval",
        "retrieval of images of the same class by cached frozen features",
        data=data,
        view={"train": plain_view(data), "test": plain_view(data), "resize": resize(data)},
        pooling=pooling,
        normalisation="L2",
        solver={"name": "every test image ranks all training images by the cosine", **_plain(config)},
        metric="mean over queries of the non-interpolated average precision, and of the precision among the first "
        "answers, in percent; equal similarities share their rank",
        frozen=FROZEN,
        seeds={},
    )


def voc07_svm_card(config: Voc07Svm, data: Mapping[str, Any], pooling: Mapping[str, str], left_out: int) -> Card:
    view = squashed_view(config.image_size)
    return card(
        "voc07_svm",
        "one-vs-rest linear SVMs on frozen features",
        data={**data, "left_out": f"{left_out} images that cannot be read"},
        view={"train": view, "test": view, "resize": resize(data)},
        pooling=pooling,
        normalisation=f"x / (|x| + {EPSILON:g}) in double precision",
        solver={
            "name": "scikit-learn LinearSVC",
            "penalty": "l2",
            "loss": "squared_hinge",
            "dual": True,
            "tol": TOLERANCE,
            "class_weight": {str(label): weight for label, weight in CLASS_WEIGHT.items()},
            "input": "turned into the span of the training images where that is smaller: the same inner products",
            "cost_values": list(COSTS[config.costs]),
            "chosen": f"cost per class, by AP ({MEANING['steps']}) in the folds of trainval, then refit on all",
            "fold_split": "StratifiedKFold, shuffled with the seed; of equally good costs the smallest",
            **_plain(config, "path", "taps", "image_size"),
        },
        metric=f"AP in percent, {MEANING['area']}; map is the mean over classes",
        difficult="an image with only difficult objects of a class is a negative in training, left out of its test",
        frozen=FROZEN,
        seeds={"folds and solver": config.seed},
    )


def finetune_card(
    config: Finetune,
    seed: int,
    data: Mapping[str, Any],
    pooling: Mapping[str, str],
    workers: Mapping[str, int | list[int]],
    norms: Mapping[str, str],
) -> Card:
    """`workers` is how many trained with each share of the labels, `norms` which images their batch norms saw."""
    return card(
        "finetune",
        "fine-tuning of the whole network with a share of the labels",
        data=data,
        view={"train": random_view(data), "test": plain_view(data), "resize": resize(data)},
        pooling=pooling,
        normalisation="none",
        solver={
            "name": "SGD, momentum 0.9",
            "labels": "the same share of every class, one at least",
            "workers": dict(workers),
            "norm_statistics": dict(norms),
            **_plain(config),
        },
        metric="top-1 and top-5 accuracy in percent after the last epoch",
        frozen="nothing; batch norm in training mode",
        seeds={"labels": seed, "training": seed},
    )


def _plain(config: Settings, *left_out: str) -> Card:
    """Settings as JSON values; seeds have a place of their own."""
    return {k: v for k, v in config.model_dump(mode="json").items() if k not in ("seed", *left_out)}
