"""Fine-tunes a detector on Ray Train workers, from the last checkpoint if there is one, and saves it in scratch.

Checkpoints are files of the stage's scratch folder, each written whole, so that a new driver on a new cluster goes on
where the old one was killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from safetensors.torch import load, save_file

from bownet.config import Detection
from bownet.nets.checkpoint import load_backbone
from bownet.training import Record, Shard, by_first
from evaluation.detection.backends import build_detector
from evaluation.detection.detector import Detector
from evaluation.detection.training import Watch, check_workers, fit
from pipelines.machine import Machine
from pipelines.stages.annotated import AnnotatedPictures, categories_of, training_pictures
from pipelines.stages.device import own_device
from pipelines.stages.ray_train import agreed, furthest_checkpoint, on_workers, refusal, save_if_possible
from pipelines.store import Artifact, Folder, Workspace

CHECKPOINT, DETECTOR, HISTORY = "checkpoint.pt", "detector.safetensors", "history.json"


@dataclass(frozen=True)
class DetectionJob:
    """Everything a worker needs for one of the trials."""

    settings: Detection
    images: Artifact
    net: Artifact
    trial: int
    label: str
    key: str

    @property
    def seed(self) -> int:
        """Of the new layers, of the order of the images, their views and the sampling."""
        return self.settings.seed + self.trial


def train_detector(job: DetectionJob, work: Workspace) -> list[Record]:
    """Train to the end, or find it done; the records of the parts of the run."""
    if work.scratch.exists(HISTORY):  # written last
        return list(work.scratch.read_json(HISTORY))
    machine: Machine = work.machine
    check_workers(job.settings, machine.workers)
    config = {"job": job, "work": work}
    on_workers(_worker, config, machine.cpus_per_worker, job.key, job.label, work)
    return list(work.scratch.read_json(HISTORY))


def new_detector(job: DetectionJob) -> Detector:
    """As it is before the first step: every weight of the network, and new layers."""
    backbone = load_backbone(job.net.local_path("backbone.safetensors"))
    return build_detector(job.settings, backbone, len(categories_of(job.images)), job.seed)


@lru_cache(maxsize=1)
def trained_detector(job: DetectionJob, scratch: Folder) -> Detector:
    """As it is after the last step, in evaluation mode; loaded once per worker process."""
    detector = new_detector(job)
    detector.load_state_dict(load(scratch.read_bytes(DETECTOR)))
    return detector.eval().to(own_device())


def _worker(config: dict[str, Any]) -> str | None:
    """One Ray Train worker. What the user must mend is returned, not raised: trying again would only repeat it."""
    try:
        _train_on_worker(config["job"], config["work"])
    except ValueError as error:
        return refusal(error)
    return None


def _train_on_worker(job: DetectionJob, work: Workspace) -> None:
    import ray.train
    from ray.train.torch import get_device, prepare_model

    machine: Machine = work.machine
    torch.set_num_threads(machine.cpus_per_worker)
    context = ray.train.get_context()
    shard = Shard(context.get_world_rank(), context.get_world_size())

    def prepare() -> tuple[Detector, AnnotatedPictures]:
        return new_detector(job).to(get_device()), training_pictures(job.images)

    detector, pictures = agreed(prepare, shard.world)

    def tell(record: Record) -> None:
        if shard.rank == 0 and machine.board is not None:
            kind = "part" if record["ended"] else "step"
            place = {"unit": "trial", "epoch": job.trial, "epochs": job.settings.trials, "done": record["done"]}
            machine.board.post.remote(
                {"kind": kind, "label": job.label, "key": job.key, "loss": record["loss"], **place}
            )

    history = fit(
        detector,
        pictures,
        job.settings,
        job.seed,
        shard=shard,
        parallel=lambda module: prepare_model(module, move_to_device=False),
        resume=by_first(lambda: furthest_checkpoint(work.scratch, CHECKPOINT), shard),
        watch=Watch(save=lambda state: save_if_possible(work.scratch, CHECKPOINT, state), tell=tell),
    )
    if shard.rank == 0:
        state = {name: value.contiguous().cpu() for name, value in detector.state_dict().items()}
        work.scratch.write_via(DETECTOR, lambda path: save_file(state, path))
        work.scratch.write_json(HISTORY, history)
