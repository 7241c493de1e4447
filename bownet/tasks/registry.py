"""Every task that a base teacher can learn, by its name in `teacher.kind`: settings in, the module to train out.

A new task is a file beside this one and an entry in TASKS; docs/tasks.md shows how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from bownet.config import Perturbation, Student, Teacher
from bownet.nets.taps import Backbone
from bownet.tasks.cosine_classifier import cosine_classifier_task
from bownet.tasks.deeper_clustering import DeeperClusteringTask
from bownet.tasks.relative_location import RelativeLocationTask
from bownet.tasks.rotation import RotationTask
from bownet.tasks.supervised import supervised_task


@dataclass(frozen=True)
class Ingredients:
    """All that a task may be made of; each takes what it needs."""

    backbone: Backbone
    teacher: Teacher
    student: Student
    """Its perturbation and CutMix, for the task that is to have the same."""
    seed: int
    classes: int | None = None
    """One more than the largest label; None where images have no labels."""
    cropped: bool = False
    """Images are windows that were cut out of their files at random: the task crops no further."""

    @property
    def pad(self) -> int:
        return 0 if self.cropped else self.teacher.pad

    @property
    def perturbation(self) -> Perturbation:
        whole = {"crop_area": (1.0, 1.0), "crop_aspect": (1.0, 1.0)} if self.cropped else {}
        return self.student.perturbation.model_copy(update=whole)

    @property
    def labelled(self) -> int:
        """The number of classes, for tasks that learn from labels."""
        if self.classes is None:
            raise ValueError(f"teacher.kind={self.teacher.kind}: learns from labels, and these images have none")
        return self.classes


@dataclass(frozen=True)
class Entry:
    """A task and what its surroundings must know of it."""

    make: Callable[[Ingredients], nn.Module]
    cut: Literal["shifted", "random"] = "shifted"
    """The view of bownet/images/views.py that is cut out of an image stored as a file; `random` with the student's
    range of crops."""
    labels: bool = False
    """Whether its targets are the labels; without, it needs none or renews its own."""
    views: float = 1.0
    """Images that the network sees for each one of a batch, for estimates of time."""


def _deeper_clustering(given: Ingredients) -> nn.Module:
    t = given.teacher
    return DeeperClusteringTask(
        given.backbone,
        t.clusters,
        t.renew_every,
        t.head_layers,
        given.perturbation,
        given.student.cutmix,
        given.seed,
    )


TASKS: dict[str, Entry] = {
    "rotation": Entry(lambda given: RotationTask(given.backbone, given.teacher.head_layers, given.pad), views=4),
    "relative_location": Entry(lambda given: RelativeLocationTask(given.backbone), views=9 / 16),  # patches of 1/4 side
    "deeper_clustering": Entry(_deeper_clustering, cut="random"),
    "supervised": Entry(lambda given: supervised_task(given.backbone, given.labelled, given.pad), labels=True),
    "cosine_classifier": Entry(
        lambda given: cosine_classifier_task(given.backbone, given.labelled, given.pad), labels=True
    ),
}


def entry(name: str) -> Entry:
    """The task of this name."""
    if name not in TASKS:
        raise ValueError(f"teacher.kind={name!r}: tasks that train are {', '.join(TASKS)}")
    return TASKS[name]


def build_task(name: str, given: Ingredients) -> nn.Module:
    """The task on its backbone. The same seed gives the same heads, and the caller's random state is left alone."""
    make = entry(name).make
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(given.seed)
        return make(given)
