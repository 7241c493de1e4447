"""teacher: the base convnet Φ̂, a RotNet trained on the images or a random network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from bownet.config import Net, Teacher
from bownet.images.views import shifted_view
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone
from bownet.tasks.rotation import RotationTask
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import RESIZE, data_of
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
    version = 2

    def estimate(self) -> Estimate:
        return training_estimate(self.images, self.teacher.net, self.teacher.optimiser, views=4)

    def build(self, work: Workspace) -> dict[str, Any]:
        data = data_of(self.images)
        make = partial(_rotation_task, self.teacher, self.seed, self.images)
        cut = partial(shifted_view, size=data.image_size, resize=round(data.image_size * RESIZE))
        net, optimiser = self.teacher.net, self.teacher.optimiser
        return run_training(
            TrainingJob(make, self.images, net, optimiser, self.seed, self.label, work.key, cut=cut), work
        )


def new_backbone(net: Net, seed: int, images: Artifact) -> Backbone:
    """Freshly initialised, with the input statistics of the images it will see."""
    backbone = build_backbone(net, seed)
    backbone.set_input_statistics(images.info["mean"], images.info["std"])
    return backbone


def _rotation_task(teacher: Teacher, seed: int, images: Artifact) -> nn.Module:
    pad = teacher.pad if data_of(images).is_raw else 0  # a file's window has been shifted when it was cut
    return RotationTask(new_backbone(teacher.net, seed, images), teacher.head_layers, pad)
