"""student: a freshly initialised network learns to predict bags of words (section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from bownet.config import Student
from bownet.images.views import random_view
from bownet.tasks.bow import BowTask
from bownet.words.health import Health
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import data_of
from pipelines.stages.teacher import new_backbone
from pipelines.stages.training import TrainingJob, run_training, training_estimate
from pipelines.stages.words import load_words
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace


@dataclass(frozen=True)
class TrainStudent(ModelStage):
    student: Student
    seed: int
    images: Artifact
    words: Artifact
    min_perplexity: float = field(default=0.0, metadata=NOT_IN_KEY)

    name = "student"
    title = "training"
    version = 2

    def estimate(self) -> Estimate:
        return training_estimate(self.images, self.student.net, self.student.optimiser)

    def build(self, work: Workspace) -> dict[str, Any]:
        Health(**self.words.read_json("health.json")).require_perplexity(self.min_perplexity)
        g = self.student.perturbation
        job = TrainingJob(
            partial(_bow_task, self.student, self.seed, self.images, self.words),
            self.images,
            self.student.net,
            self.student.optimiser,
            self.seed,
            self.label,
            work.key,
            cut=partial(random_view, size=data_of(self.images).image_size, area=g.crop_area, aspect=g.crop_aspect),
            targets=partial(load_words, self.words),
        )
        return run_training(job, work)


def _bow_task(student: Student, seed: int, images: Artifact, words: Artifact) -> nn.Module:
    if not data_of(images).is_raw:  # a file's crop is cut when it is decoded
        whole = student.perturbation.model_copy(update={"crop_area": (1.0, 1.0), "crop_aspect": (1.0, 1.0)})
        student = student.model_copy(update={"perturbation": whole})
    return BowTask(new_backbone(student.net, seed, images), words.info["size"], student)
