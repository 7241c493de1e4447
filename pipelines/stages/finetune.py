"""finetune: the whole network learns further from a share of the labels; each share is a training of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from safetensors.torch import load, save_file

from bownet.config import Finetune
from bownet.images.views import random_view
from bownet.nets.checkpoint import load_backbone, load_saved
from bownet.training import check_workers
from evaluation.cards import finetune_card, norm_statistics, on_gpus, told, workers_of
from evaluation.crops import ASPECT, random_crops
from evaluation.finetune import FinetuneTask, labelled_rows, optimiser_of, share_of
from evaluation.score import Score
from pipelines.stages.device import own_device
from pipelines.stages.linear_online import synchronised
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import class_counts_of, count_of, data_of, labels_of
from pipelines.stages.scoring import data_card, label_obstacle, write_score
from pipelines.stages.testing import Classify, class_numbers, classes_of, tallies_on_test
from pipelines.stages.training import TrainingJob, run_training
from pipelines.store import Artifact, Estimate, Workspace

BACKBONE = "backbone.safetensors"
CLASSIFIER = "classifier.safetensors"


def one_fraction_each(config: Finetune) -> list[Finetune]:
    """The settings of each training."""
    return [config.model_copy(update={"fractions": (fraction,)}) for fraction in config.fractions]


def percent(fraction: float) -> str:
    """As metrics name it: 1pct, 10pct, 0.5pct."""
    return f"{100 * fraction:g}pct"


@dataclass(frozen=True)
class FinetuneTraining(ModelStage):
    finetune: Finetune  # with one fraction
    seed: int
    images: Artifact
    net: Artifact

    name = "finetune-training"
    version = 3

    @property
    def fraction(self) -> float:
        (fraction,) = self.finetune.fractions
        return fraction

    @property
    def label(self) -> str:
        return f"{self.model}: fine-tuning, {percent(self.fraction)}"

    @property
    def curves(self) -> str:
        return f"finetune_{percent(self.fraction)}_training"

    def check_workers(self, workers: int, gpu: bool) -> None:
        labelled = sum(share_of(count, self.fraction) for count in class_counts_of(self.images, "train"))
        check_workers(labelled, optimiser_of(self.finetune), workers, gpu, "finetune")

    def estimate(self) -> Estimate:
        n = max(1, round(count_of(self.images, "train") * self.fraction))
        return Estimate(f"{self.finetune.epochs} epochs of about {n} images")

    def build(self, work: Workspace) -> dict[str, Any]:
        size, classes = data_of(self.images).image_size, classes_of(self.images)
        numbers = class_numbers(self.images, "train", classes)
        rows = labelled_rows(labels_of(self.images, "train"), self.fraction, self.seed)
        job = TrainingJob(
            partial(self.task, len(classes)),
            self.images,
            load_saved(self.net.local_path(BACKBONE))[1],
            synchronised(optimiser_of(self.finetune), work.machine),
            self.seed,
            self.label,
            work.key,
            cut=partial(random_view, size=size, area=self.finetune.crop_area, aspect=ASPECT),
            targets=lambda: numbers[rows],
            rows=rows,
            keep=_keep,
        )
        made = run_training(job, work)
        history = work.read_json("history.json")
        workers = workers_of(history)
        seen = {"workers": told(workers), "norm_statistics": norm_statistics(workers, on_gpus(history))}
        return {**made, "labelled": len(rows), "classes": len(classes), **seen}

    def task(self, classes: int, crops: bool = True) -> FinetuneTask:
        """What is trained, as it is before the first step."""
        config = self.finetune
        drawn = random_crops(config.crop_area, not data_of(self.images).is_raw) if crops else None
        backbone = load_backbone(self.net.local_path(BACKBONE))
        return FinetuneTask(backbone, classes, drawn, config.head_lr / config.lr, self.seed)


@dataclass(frozen=True)
class FinetuneScore(ModelStage):
    """Accuracy on the test images of the network of every share."""

    finetune: Finetune
    seed: int
    images: Artifact
    net: Artifact
    trained: tuple[Artifact, ...]  # one for each fraction

    name = "finetune"
    title = "fine-tuning"
    version = 3

    @staticmethod
    def obstacle(images: Artifact, finetune: Finetune) -> str | None:
        reason = label_obstacle(images, "train", "test")
        return f"finetune is left out: {reason}" if reason else None

    def config(self) -> dict[str, Any]:
        return {"finetune": self.finetune, "seed": self.seed}

    def inputs(self) -> dict[str, Artifact]:
        shares = zip(self.finetune.fractions, self.trained, strict=True)
        return {**super().inputs(), **{percent(fraction): artifact for fraction, artifact in shares}}

    def estimate(self) -> Estimate:
        return Estimate(f"{len(self.trained)} x {count_of(self.images, 'test')} test images")

    def build(self, work: Workspace) -> dict[str, Any]:
        metrics: dict[str, float] = {}
        categories = self.images.info["categories"]
        details: dict[str, Any] = {"classes": [str(categories[c]) for c in classes_of(self.images)]}
        said: dict[str, dict[str, Any]] = {"labelled": {}, "workers": {}, "norm_statistics": {}}
        for fraction, artifact in zip(self.finetune.fractions, self.trained, strict=True):
            share = percent(fraction)
            for name, values in said.items():
                values[share] = artifact.info[name]
            load = partial(_classifier, artifact, self.net)
            tally = tallies_on_test(self.images, load, work, self.label, share)[share]
            metrics |= {f"{share}/{name}": value for name, value in tally.metrics().items()}
            details[share] = tally.details()
        backbone = load_backbone(self.net.local_path(BACKBONE))
        pooling = {backbone.pooled: f"one value a channel, {backbone.tap_channels[backbone.pooled]} values"}
        data = data_card(self.images, train="train", test="test")
        data["labelled"] = said["labelled"]
        card = finetune_card(self.finetune, self.seed, data, pooling, said["workers"], said["norm_statistics"])
        return write_score(work, "finetune", Score(metrics, details), card)


def _keep(task: FinetuneTask, work: Workspace) -> None:
    """Network and head together: of use for their scores alone."""
    state = {name: value.contiguous().cpu() for name, value in task.state_dict().items()}
    work.write_via(CLASSIFIER, lambda path: save_file(state, path))


def _classifier(trained: Artifact, net: Artifact) -> Classify:
    """What is tested: the network as it was kept."""
    task = FinetuneTask(load_backbone(net.local_path(BACKBONE)), trained.info["classes"], None, 1.0, 0)
    task.load_state_dict(load(trained.read_bytes(CLASSIFIER)))
    task.eval().to(own_device())
    return task.logits
