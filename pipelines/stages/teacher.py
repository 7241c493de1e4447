"""teacher: the base convnet Φ̂, trained on a task of its own or as it was initialised."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from bownet.config import Net, Proxy, Student, Teacher
from bownet.images.views import RESIZE, random_view, shifted_view
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import load_backbone
from bownet.nets.taps import Backbone
from bownet.tasks.registry import Ingredients, build_task, entry
from bownet.training import check_workers
from pipelines.stages.inputs import Cut
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import class_counts_of, count_of, data_of, labels_of
from pipelines.stages.training import TrainingJob, require_labels, run_training, training_estimate, write_backbone
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace


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
class TrainTeacher(ModelStage):
    """A base teacher learns the task that `teacher.kind` names (appendix C.1). Its head is then thrown away."""

    teacher: Teacher
    seed: int
    images: Artifact
    like: Student | None = None  # whose perturbation and CutMix a task takes over
    start: Artifact | None = None  # the network that training goes on from; None for a fresh one
    proxy: Proxy = field(default=Proxy(), metadata=NOT_IN_KEY)
    settings_name: str = field(default="teacher.optimiser", metadata=NOT_IN_KEY)  # of the optimiser's, for errors

    name = "teacher"
    title = "training"
    version = 1

    @property
    def curves(self) -> str:
        return "train"

    def check(self) -> None:
        require_labels(self.images, self.proxy)
        if entry(self.teacher.kind).labels and not class_counts_of(self.images, "train"):
            raise ValueError(
                f"teacher.kind={self.teacher.kind}: learns from labels, and the training images have none; "
                "use rotation, relative_location, deeper_clustering or random"
            )
        images = count_of(self.images, "train")
        if self.teacher.kind == "deeper_clustering" and self.teacher.clusters > images:
            raise ValueError(f"teacher.clusters={self.teacher.clusters}: there are {images} images, use 2..{images}")

    def check_workers(self, workers: int, gpu: bool) -> None:
        check_workers(count_of(self.images, "train"), self.teacher.optimiser, workers, gpu, self.settings_name)

    def estimate(self) -> Estimate:
        views = entry(self.teacher.kind).views
        return training_estimate(self.images, self.teacher.net, self.teacher.optimiser, views)

    def build(self, work: Workspace) -> dict[str, Any]:
        task, size = entry(self.teacher.kind), data_of(self.images).image_size
        g = (self.like or Student()).perturbation
        cuts: dict[str, Cut] = {
            "shifted": partial(shifted_view, size=size, resize=round(size * RESIZE)),
            "random": partial(random_view, size=size, area=g.crop_area, aspect=g.crop_aspect),
        }
        job = TrainingJob(
            partial(new_task, self),
            self.images,
            self.teacher.net,
            self.teacher.optimiser,
            self.seed,
            self.label,
            work.key,
            cut=cuts[task.cut],
            targets=partial(labels_of, self.images, "train") if task.labels else None,
            proxy=self.proxy,
        )
        return run_training(job, work)


def rotnet_first(teacher: Teacher, seed: int, images: Artifact) -> TrainTeacher:
    """The RotNet that Deeper Clustering goes on from, as in the paper."""
    assert teacher.rotnet_first is not None
    first = Teacher(arch=teacher.arch, head_layers=teacher.head_layers, pad=teacher.pad, optimiser=teacher.rotnet_first)
    return TrainTeacher(first, seed, images, model="RotNet", settings_name="teacher.rotnet_first")


def seen_as_by(student: Student) -> Student:
    """How a student sees images, for a teacher that is to see them alike; what else it is changes no teacher."""
    return Student(cutmix=student.cutmix, perturbation=student.perturbation)


def new_backbone(net: Net, seed: int, images: Artifact) -> Backbone:
    """Freshly initialised, with the input statistics of the images it will see."""
    backbone = build_backbone(net, seed)
    backbone.set_input_statistics(images.info["mean"], images.info["std"])
    return backbone


def new_task(stage: TrainTeacher) -> nn.Module:
    """What the stage trains, as it is before the first step."""
    images, kind = stage.images, stage.teacher.kind
    if stage.start:
        backbone = load_backbone(stage.start.local_path("backbone.safetensors"))
    else:
        backbone = new_backbone(stage.teacher.net, stage.seed, images)
    classes = int(labels_of(images, "train").max()) + 1 if entry(kind).labels else None
    like, cropped = stage.like or Student(), not data_of(images).is_raw  # a file's window is cut when it is decoded
    return build_task(kind, Ingredients(backbone, stage.teacher, like, stage.seed, classes, cropped))
