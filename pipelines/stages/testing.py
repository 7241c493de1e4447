"""The pass over the test images that ends an evaluation: a classifier goes in, its counts over all shards come out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bownet.images.augment import to_float
from evaluation.tally import Tally
from pipelines.stages.device import own_device
from pipelines.stages.pictures import labels_of, pixels_of, shard_labels, shards_of
from pipelines.stages.shards import Row, for_each_shard
from pipelines.store import Artifact, Workspace

BATCH = 128  # images at a time
# Float NCHW -> scores of every class, of one classifier or of several by name.
Classify = Callable[[Tensor], Tensor | dict[str, Tensor]]


def classes_of(images: Artifact) -> NDArray[np.int64]:
    """The categories of training and test images; a class number is a place in this list."""
    return np.unique(np.concatenate([labels_of(images, split) for split in ("train", "test")]))


def class_numbers(images: Artifact, split: str, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(classes, labels_of(images, split))


def tallies_on_test(
    images: Artifact, load: Callable[[], Classify], work: Workspace, label: str, name: str = "all"
) -> dict[str, Tally]:
    """Counts over the centre crops of all test images, by the name of a classifier; `name` where there is but one.

    `load` makes the classifier on a worker, once per process.
    """
    classes = classes_of(images)
    count = partial(_count, images=images, classes=classes, load=load, name=name, work=work)
    done = for_each_shard(shards_of(images, "test"), count, work.machine, label, gpu=True)
    total: dict[str, Tally] = {}
    for row in done:
        for which, (cells, counts, in_five) in row["tallies"].items():
            tally = total.setdefault(which, Tally(len(classes)))
            tally.confusion_CC.view(-1)[cells] += torch.tensor(counts)
            tally.in_first_five += in_five
    return total


def _count(
    row: Row, images: Artifact, classes: NDArray[np.int64], load: Callable[[], Classify], name: str, work: Workspace
) -> Row:
    record = f"{row['name']}.{name}.tallies.json"
    if work.scratch.exists(record):
        return dict(work.scratch.read_json(record))
    classify = _Loaded.get(f"{work.key}/{name}", load)
    labels = shard_labels(images, row)
    assert labels is not None, row["name"]
    label_N, pixels_NHWC = torch.from_numpy(np.searchsorted(classes, labels)), torch.from_numpy(pixels_of(images, row))
    device = own_device()
    total: dict[str, Tally] = {}
    with torch.inference_mode():
        for x, y_N in zip(pixels_NHWC.split(BATCH), label_N.split(BATCH), strict=True):
            scores = classify(to_float(x.to(device)))
            for tap, scores_NC in (scores if isinstance(scores, dict) else {name: scores}).items():
                total.setdefault(tap, Tally(len(classes))).add(scores_NC.cpu(), y_N)
    made: dict[str, Any] = {"tallies": {tap: _sparse(t) for tap, t in total.items()}}
    work.scratch.write_json(record, made)
    return made


def _sparse(tally: Tally) -> tuple[list[int], list[int], int]:
    """Cells of the confusion matrix that are not zero, and their counts: few, in a shard of a thousand classes."""
    flat = tally.confusion_CC.flatten()
    cells = flat.nonzero()[:, 0]
    return cells.tolist(), flat[cells].tolist(), tally.in_first_five


class _Loaded:
    """The last classifier that this process has loaded."""

    _kept: tuple[str, Classify] | None = None

    @classmethod
    def get(cls, key: str, load: Callable[[], Classify]) -> Classify:
        if cls._kept is None or cls._kept[0] != key:
            cls._kept = (key, load())
        return cls._kept[1]
