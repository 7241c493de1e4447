"""The protocol card of a detection score: what exactly was done to get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bownet.config import Detection
from evaluation.cards import FILTER, Card, card, norm_statistics, told
from evaluation.detection.training import BATCH_OF_LR, MOMENTUM, WARMUP_FROM
from evaluation.voc_detection import definition

STAGES = ("stem", "conv2", "conv3", "conv4", "conv5")

# In torchvision's words and in detectron2's, where the two back ends do not do the same.
DIFFERENCES = {
    "torchvision": (
        "proposals narrower than 0.001 pixels and detections narrower than 0.01 are dropped, in detectron2 empty ones",
        "proposals are ranked by the sigmoid of their score, in detectron2 by the score: ties may fall otherwise",
        "there is a box regression for the background too, which nothing trains",
    ),
    "detectron2": (),
}
# Where both do other than detectron2's own trainer.
OF_BOTH = (
    "batches are not grouped by the images' aspect ratio, so that there is more padding, which batch norm sees too",
    "batch norm keeps its moving statistics for the test, without PreciseBN",
)


def detection_card(
    settings: Detection,
    arch: str,
    data: Mapping[str, Any],
    workers: Sequence[int],
    gpu: bool,
    absent: tuple[str, ...] = (),
) -> Card:
    """`data` says which images, `workers` how many trained, as `evaluation.cards.workers_of` gives it for all trials,
    and `absent` which classes have no test objects."""
    solver = settings.model_dump(mode="json", exclude={"path", "train", "trials", "pictures", "seed"})
    notes = [*DIFFERENCES[settings.backend], *OF_BOTH]
    if absent:
        notes.append(f"no test objects of {', '.join(absent)}: left out of the mean over classes")
    ap = definition()
    return card(
        "detection",
        f"Faster R-CNN C4 of a {arch}, fine-tuned, by {settings.backend}",
        data=data,
        view={
            "train": "short side drawn from train_sizes, random flip; images without objects left out",
            "test": f"short side {settings.test_size}, longest at most {settings.max_size}",
            "resize": FILTER,
        },
        pooling={"region": "RoIAlign 14x14 of conv4, aligned, adaptive sampling; conv5, batch norm, mean"},
        normalisation=_norms(workers, gpu),
        solver={
            "name": "SGD",
            "arch": arch,
            "momentum": MOMENTUM,
            "lr_of_batch": settings.lr * settings.batch / BATCH_OF_LR,
            "drop_factor": 0.1,
            "warmup_from": WARMUP_FROM,
            "not_decayed": "norms",
            "workers": told(workers),
            "norm_statistics": norm_statistics(workers, gpu),
            **solver,
        },
        metric=ap["metric"],
        difficult=f"kept in training; in the test {ap['difficult']}",
        seeds={"first_trial": settings.seed},
        trials=settings.trials,
        frozen=_frozen(settings.freeze),
        matching={name: ap[name] for name in ("matching", "boxes", "rounding")},
        notes=notes,
    )


def _norms(workers: Sequence[int], gpu: bool) -> str:
    how = "input by the network's own mean and deviation; batch norm fine-tuned, also after conv5 of each region; "
    if set(workers) == {1}:
        return how + "statistics of the whole batch, on one worker"
    number = ", then ".join(map(str, workers))
    if gpu:
        return how + f"synchronised over {number} workers"
    return how + f"not synchronised: each of {number} CPU workers has the statistics of its own images"


def _frozen(stages: int) -> str:
    if not stages:
        return "nothing"
    return f"{', '.join(STAGES[:stages])}, with their batch norms in evaluation mode"
