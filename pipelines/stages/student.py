"""student: a freshly initialised network learns to predict bags of words (section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bownet.config import Student
from bownet.tasks.bow import BowTask
from pipelines.stages.images import load_split
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.teacher import new_backbone
from pipelines.stages.training import TrainingJob, run_training, training_estimate
from pipelines.stages.words import load_words
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class TrainStudent(ModelStage):
    student: Student
    seed: int
    images: Artifact
    words: Artifact

    name = "student"
    title = "training"
    version = 1

    def estimate(self) -> Estimate:
        return training_estimate(self.images, self.student.net, self.student.optimiser)

    def build(self, work: Workspace) -> dict[str, Any]:
        make = partial(_bow_task, self.student, self.seed, self.images, self.words)
        return run_training(
            TrainingJob(make, self.student.net, self.student.optimiser, self.seed, self.label, work.key), work
        )


def _bow_task(student: Student, seed: int, images: Artifact, words: Artifact) -> tuple[nn.Module, Tensor, Tensor]:
    task = BowTask(new_backbone(student.net, seed, images), words.info["size"], student)
    # torch indexes int32 on every device; uint16 it does not
    targets = torch.from_numpy(load_words(words).astype(np.int32))
    return task, torch.from_numpy(load_split(images, "train")), targets
