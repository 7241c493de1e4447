"""What stages that score frozen features share: obstacles, labels, a worker to compute on, and the files of a score."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from evaluation.cards import Card, completed
from evaluation.score import Score
from pipelines.stages.one_task import in_one_task
from pipelines.stages.pictures import (
    class_counts_of,
    count_of,
    counts_by_class,
    data_of,
    labels_of,
    names_of,
    shards_of,
)
from pipelines.store import Artifact, Workspace

T = TypeVar("T")


def label_obstacle(images: Artifact, *splits: str) -> str | None:
    """Why splits cannot be scored by their labels; None if each has images of two classes or more, some in common."""
    classes = []
    for split in splits:
        if not count_of(images, split):
            return f"there are no {split} images"
        if len(counts := counts_by_class(images, split)) < 2:
            return f"the {split} images {'are all of one class' if counts else 'have no class labels'}"
        classes.append(set(counts))
    if not set.intersection(*classes):
        return f"the {' and the '.join(splits)} images have no class in common"
    return None


def common_labels(images: Artifact, *splits: str) -> tuple[list[str], list[Tensor]]:
    """Names of the classes that occur in any of the splits, and labels of each that number these from zero."""
    labels = [labels_of(images, split) for split in splits]
    occurring = np.unique(np.concatenate(labels))
    names = [str(images.info["categories"][c]) for c in occurring]
    return names, [torch.from_numpy(np.searchsorted(occurring, of_split)) for of_split in labels]


def data_card(images: Artifact, **splits: str) -> Card:
    """What a card says of the images: the set, its hash, and the split that has the role of `train` or `test`."""
    return {
        "set": data_of(images).kind,
        "key": images.key,
        "image_size": data_of(images).image_size,
        "storage": "raw" if data_of(images).is_raw else "encoded",
        **{
            role: {
                "split": split,
                "images": count_of(images, split),
                "classes": len(class_counts_of(images, split)),
            }
            for role, split in splits.items()
        },
    }


def names_and_labels_sha256(images: Artifact, split: str) -> str:
    """Equal for the same images in the same order, at whatever size they are stored."""
    digest = hashlib.sha256()
    for row in shards_of(images, split):
        for name in names_of(images, row):
            digest.update(name.encode() + b"\n")
    digest.update(labels_of(images, split).astype("<i8").tobytes())
    return digest.hexdigest()


def on_worker(work: Workspace, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function as a Ray task with as many threads as a training worker has. It reads its features itself."""
    from ray.exceptions import RayTaskError

    threads = work.machine.cpus_per_worker

    def run(*arguments: Any) -> T:
        torch.set_num_threads(threads)
        return function(*arguments)

    try:
        return in_one_task(run, arguments, work.machine, work.prefix, threads)
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, ValueError) else error from None  # a line for the user


def write_score(work: Workspace, evaluator: str, score: Score, card: Card) -> dict[str, Any]:
    """metrics.json with the evaluator's name before each metric, protocol.json, details.json; and for the manifest."""
    named = {f"{evaluator}/{name}": value for name, value in score.metrics.items()}
    work.write_json("metrics.json", named)
    work.write_json("protocol.json", completed(card))
    work.write_json("details.json", score.details)
    return {"metrics": named}
