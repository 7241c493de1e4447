"""student: a freshly initialised network learns to predict bags of words (section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from safetensors.torch import save_file
from torch import nn

from bownet.config import Net, Proxy, Student
from bownet.images.views import random_view
from bownet.nets.checkpoint import load_backbone
from bownet.tasks.bow import BowTask, OnlineWords
from bownet.training import check_workers
from bownet.words.health import Health
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of
from pipelines.stages.teacher import new_backbone
from pipelines.stages.training import TrainingJob, require_labels, run_training, training_estimate, write_backbone
from pipelines.stages.vocabulary import vocabulary_of
from pipelines.stages.words import load_words
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace

HEAD = "omega.safetensors"  # what predicts words from the feature; for figures, no evaluator sees it


@dataclass(frozen=True)
class TrainStudent(ModelStage):
    student: Student
    seed: int
    images: Artifact
    words: Artifact
    min_perplexity: float = field(default=0.0, metadata=NOT_IN_KEY)
    teacher: Artifact | None = None  # with its vocabulary, for student.target=perturbed
    vocabulary: Artifact | None = None
    proxy: Proxy = field(default=Proxy(), metadata=NOT_IN_KEY)

    name = "student"
    title = "training"
    version = 2

    @property
    def curves(self) -> str:
        return "train"

    def check(self) -> None:
        require_labels(self.images, self.proxy)

    def check_workers(self, workers: int, gpu: bool) -> None:
        check_workers(count_of(self.images, "train"), self.student.optimiser, workers, gpu, "student.optimiser")

    def estimate(self) -> Estimate:
        return training_estimate(self.images, self.student.net, self.student.optimiser)

    def build(self, work: Workspace) -> dict[str, Any]:
        Health(**self.words.read_json("health.json")).require_perplexity(self.min_perplexity)
        g = self.student.perturbation
        job = TrainingJob(
            partial(_bow_task, self),
            self.images,
            self.student.net,
            self.student.optimiser,
            self.seed,
            self.label,
            work.key,
            cut=partial(random_view, size=data_of(self.images).image_size, area=g.crop_area, aspect=g.crop_aspect),
            targets=partial(load_words, self.words),
            proxy=self.proxy,
            keep=partial(_keep, self.student.net),
        )
        return run_training(job, work)


def _bow_task(stage: TrainStudent) -> nn.Module:
    student, images, words = stage.student, stage.images, stage.words
    if not data_of(images).is_raw:  # a file's crop is cut when it is decoded
        whole = student.perturbation.model_copy(update={"crop_area": (1.0, 1.0), "crop_aspect": (1.0, 1.0)})
        student = student.model_copy(update={"perturbation": whole})
    online = None
    if stage.teacher and stage.vocabulary:
        online = OnlineWords(
            load_backbone(stage.teacher.local_path("backbone.safetensors")), vocabulary_of(stage.vocabulary)
        )
    return BowTask(new_backbone(student.net, stage.seed, images), words.info["size"], student, online)


def _keep(net: Net, task: nn.Module, work: Workspace) -> None:
    assert isinstance(task, BowTask)
    write_backbone(task.backbone, net, work)
    weights = {name: values.detach().cpu().contiguous() for name, values in task.head.state_dict().items()}
    work.write_via(HEAD, lambda path: save_file(weights, path))
