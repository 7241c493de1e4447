"""teacher: the base convnet Φ̂, a RotNet trained on the images or a random network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bownet.config import Net, Teacher
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone
from bownet.tasks.rotation import RotationTask
from pipelines.stages.images import load_split
from pipelines.stages.training import TrainingJob, run_training, training_estimate, write_backbone
from pipelines.store import Artifact, Estimate, Stage, Workspace


@dataclass(frozen=True)
class RandomNet(Stage):
    """A network as it is initialised: the floor of every comparison, and the random base teacher."""

    net: Net
    seed: int
    images: Artifact
    model: str = "random"

    name = "random-net"
    version = 1

    @property
    def label(self) -> str:
        return f"{self.model}: network"

    def config(self) -> dict[str, Any]:
        return {"net": self.net, "seed": self.seed}

    def inputs(self) -> dict[str, Artifact]:
        return {"images": self.images}

    def estimate(self) -> Estimate:
        return Estimate("no training")

    def build(self, work: Workspace) -> dict[str, Any]:
        write_backbone(new_backbone(self.net, self.seed, self.images), self.net, work, work.key, self.label)
        return {}


@dataclass(frozen=True)
class RotNet(Stage):
    """Appendix C.1. The rotation head is thrown away after training."""

    teacher: Teacher
    seed: int
    images: Artifact
    model: str = "RotNet"

    name = "rotnet"
    version = 1

    @property
    def label(self) -> str:
        return f"{self.model}: training"

    def config(self) -> dict[str, Any]:
        return {"teacher": self.teacher, "seed": self.seed}

    def inputs(self) -> dict[str, Artifact]:
        return {"images": self.images}

    def estimate(self) -> Estimate:
        return training_estimate(self.images, self.teacher.net, self.teacher.optimiser, views=4)

    def build(self, work: Workspace) -> dict[str, Any]:
        make = partial(_rotation_task, self.teacher, self.seed, self.images)
        return run_training(
            TrainingJob(make, self.teacher.net, self.teacher.optimiser, self.seed, self.label, work.key), work
        )


def base_teacher(teacher: Teacher, seed: int, images: Artifact) -> Stage:
    """The stage that makes the first teacher."""
    if teacher.kind == "random":
        return RandomNet(teacher.net, seed, images)
    return RotNet(teacher, seed, images)


def new_backbone(net: Net, seed: int, images: Artifact) -> Backbone:
    """Freshly initialised, with the input statistics of the images it will see."""
    backbone = build_backbone(net, seed)
    backbone.set_input_statistics(images.info["mean"], images.info["std"])
    return backbone


def _rotation_task(teacher: Teacher, seed: int, images: Artifact) -> tuple[nn.Module, Tensor, None]:
    task = RotationTask(new_backbone(teacher.net, seed, images), teacher.head_layers, teacher.pad)
    return task, torch.from_numpy(load_split(images, "train")), None
