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
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.training import TrainingJob, run_training, training_estimate, write_backbone
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class RandomNet(ModelStage):
    """A network as it is initialised: the floor of every comparison, and the random base teacher."""

    net: Net
    seed: int
    images: Artifact

    name = "random-net"
    title = "network"
    version = 1

    def estimate(self) -> Estimate:
        return Estimate("no training")

    def build(self, work: Workspace) -> dict[str, Any]:
        write_backbone(new_backbone(self.net, self.seed, self.images), self.net, work)
        return {}


@dataclass(frozen=True)
class RotNet(ModelStage):
    """Appendix C.1. The rotation head is thrown away after training."""

    teacher: Teacher
    seed: int
    images: Artifact

    name = "rotnet"
    title = "training"
    version = 1

    def estimate(self) -> Estimate:
        return training_estimate(self.images, self.teacher.net, self.teacher.optimiser, views=4)

    def build(self, work: Workspace) -> dict[str, Any]:
        make = partial(_rotation_task, self.teacher, self.seed, self.images)
        return run_training(
            TrainingJob(make, self.teacher.net, self.teacher.optimiser, self.seed, self.label, work.key), work
        )


def new_backbone(net: Net, seed: int, images: Artifact) -> Backbone:
    """Freshly initialised, with the input statistics of the images it will see."""
    backbone = build_backbone(net, seed)
    backbone.set_input_statistics(images.info["mean"], images.info["std"])
    return backbone


def _rotation_task(teacher: Teacher, seed: int, images: Artifact) -> tuple[nn.Module, Tensor, None]:
    task = RotationTask(new_backbone(teacher.net, seed, images), teacher.head_layers, teacher.pad)
    return task, torch.from_numpy(load_split(images, "train")), None
