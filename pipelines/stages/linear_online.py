"""linear, online: classifiers on a frozen network that sees new random crops in every epoch, trained on Ray Train."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from safetensors.torch import load, save_file

from bownet.config import Linear, Optimiser
from bownet.images.views import random_view
from bownet.nets.checkpoint import load_backbone, load_saved
from bownet.training import check_workers
from evaluation.cards import on_gpus, online_linear_card, transfer_card, workers_of
from evaluation.crops import ASPECT, random_crops
from evaluation.linear_online import (
    OnlineLinear,
    check_unchanged,
    feature_shapes,
    fingerprint_of,
    new_heads,
    optimiser_of,
)
from evaluation.pooling import in_words
from evaluation.score import Score
from pipelines.machine import Machine
from pipelines.stages.device import own_device
from pipelines.stages.linear import as_used
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of
from pipelines.stages.scoring import data_card, label_obstacle, write_score
from pipelines.stages.testing import Classify, class_numbers, classes_of, tallies_on_test
from pipelines.stages.training import TrainingJob, run_training
from pipelines.store import Artifact, Estimate, Workspace

BACKBONE = "backbone.safetensors"
HEADS = "heads.safetensors"


@dataclass(frozen=True)
class OnlineLinearScore(ModelStage):
    linear: Linear
    seed: int
    images: Artifact
    net: Artifact

    name = "linear-online"
    title = "linear, online"
    settings_name = "linear"
    make_card = staticmethod(online_linear_card)
    version = 3

    @property
    def curves(self) -> str:
        return "linear_training"

    def check_workers(self, workers: int, gpu: bool) -> None:
        check_workers(count_of(self.images, "train"), optimiser_of(self.linear), workers, gpu, self.settings_name)

    def estimate(self) -> Estimate:
        n = count_of(self.images, "train")
        return Estimate(f"{self.linear.epochs} epochs of {n} images, batches of {self.linear.batch}")

    def build(self, work: Workspace) -> dict[str, Any]:
        size, classes = data_of(self.images).image_size, classes_of(self.images)
        backbone, net = load_saved(self.net.local_path(BACKBONE))
        taps, before = self.taps_of(backbone.pooled), fingerprint_of(backbone)
        optimiser = optimiser_of(self.linear)
        job = TrainingJob(
            partial(self.task, len(classes)),
            self.images,
            net,
            synchronised(optimiser, work.machine) if self.linear.batch_norm else optimiser,
            self.seed,
            self.label,
            work.key,
            cut=partial(random_view, size=size, area=self.linear.crop_area, aspect=ASPECT),
            targets=partial(class_numbers, self.images, "train", classes),
            keep=_keep,
        )
        made = run_training(job, work)
        after = work.read_json("frozen.json")["sha256"]
        check_unchanged(before, after)
        tallies = tallies_on_test(self.images, partial(self.classifier, len(classes), work), work, self.label)
        metrics: dict[str, float] = {}
        details: dict[str, Any] = {"classes": [str(self.images.info["categories"][c]) for c in classes]}
        for tap in taps:
            found = tallies[tap].metrics()
            metrics |= (found if tap == backbone.pooled else {}) | {f"{tap}/{k}": value for k, value in found.items()}
            details[tap] = tallies[tap].details()
        pooling = {}
        for tap, shape in feature_shapes(backbone, taps, size).items():
            side = shape[1] if len(shape) > 1 else 0
            pooling[tap] = in_words(shape[0], side, self.linear.pool)
        linear = as_used(self.linear, taps, backbone.pooled)
        data, history = data_card(self.images, train="train", test="test"), work.read_json("history.json")
        card = self.make_card(linear, self.seed, data, pooling, workers_of(history), on_gpus(history))
        frozen = {"before": before, "after": after}
        return {**made, **write_score(work, self.prefix, Score(metrics, details), card), "backbone_sha256": frozen}

    @property
    def prefix(self) -> str:
        """The first part of the metrics' names."""
        return "linear"

    def taps_of(self, default: str) -> tuple[str, ...]:
        return self.linear.taps or (default,)

    def task(self, classes: int, crops: bool = True) -> OnlineLinear:
        """What is trained: the frozen network and a head for each tap, as they are before the first step."""
        data, config = data_of(self.images), self.linear
        backbone = load_backbone(self.net.local_path(BACKBONE))
        taps = self.taps_of(backbone.pooled)
        heads = new_heads(backbone, taps, config.pool, data.image_size, classes, config.batch_norm, self.seed)
        return OnlineLinear(
            backbone, heads, config.pool, random_crops(config.crop_area, not data.is_raw) if crops else None
        )

    def classifier(self, classes: int, work: Workspace) -> Classify:
        """What is tested: the same with the heads that were kept."""
        task = self.task(classes, crops=False)
        task.heads.load_state_dict(load(work.read_bytes(HEADS)))
        return task.eval().to(own_device()).logits


@dataclass(frozen=True)
class TransferScore(OnlineLinearScore):
    """The same on another set than the network was trained on; `images` are of that one."""

    name = "transfer"
    title = "transfer"
    settings_name = "transfer.linear"
    make_card = staticmethod(transfer_card)
    version = 3

    @property
    def curves(self) -> str:
        return "transfer_training"

    @property
    def prefix(self) -> str:
        return data_of(self.images).kind

    @staticmethod
    def obstacle(images: Artifact) -> str | None:
        """Why these images cannot be scored so, known before anything is trained; None if they can."""
        reason = label_obstacle(images, "train", "test")
        return f"transfer is left out: {reason}" if reason else None


def synchronised(optimiser: Optimiser, machine: Machine) -> Optimiser:
    """Batch norms see the whole batch, however many workers share it; torch has that for GPUs only."""
    return optimiser.model_copy(update={"sync_batch_norm": machine.gpu and machine.workers > 1})


def _keep(task: OnlineLinear, work: Workspace) -> None:
    """The heads, and what the network is now."""
    heads = {name: value.contiguous().cpu() for name, value in task.heads.state_dict().items()}
    work.write_via(HEADS, lambda path: save_file(heads, path))
    work.write_json("frozen.json", {"sha256": fingerprint_of(task.backbone)})
