"""Runs a task's training on Ray Train workers, from the last checkpoint if there is one, and saves the backbone.

Checkpoints are files of the stage's scratch folder, each written whole: those of the last two complete epochs, whose
losses were as they should be, and one of a later time within an epoch. They belong to the stage, not to a Ray run, so a
new driver on a new cluster continues where the old one was killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bownet.config import Net, Optimiser, Proxy
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import save_backbone
from bownet.nets.taps import Backbone
from bownet.proxy import Look, look_at, proxy_rows
from bownet.training import Diverged, Hooks, InMemory, Input, Record, Shard, by_first, steps_per_epoch, train
from pipelines.ending import root_cause
from pipelines.machine import Machine
from pipelines.stages.inputs import Cut, Share, Streamed, once_per_node, shared_cpus, streams
from pipelines.stages.pictures import class_counts_of, clean_view, count_of, data_of, labels_of, load_split, row_reader
from pipelines.stages.ray_train import agreed, furthest_checkpoint, on_workers, refusal, save_if_possible
from pipelines.store import Artifact, Estimate, Folder, Workspace

CHECKPOINT = "checkpoint.pt"  # the end of the last complete epoch
EARLIER = "checkpoint-earlier.pt"  # the end of the one before
WITHIN = "checkpoint-within-epoch.pt"  # a later one, if an epoch takes long; it may turn out to have diverged


@dataclass(frozen=True)
class TrainingJob:
    """Everything a worker needs: how to make the task, its images and targets, and how to optimise it."""

    make: Callable[[], nn.Module]
    images: Artifact
    net: Net
    optimiser: Optimiser
    seed: int
    label: str
    key: str
    cut: Cut | None = None  # what the task sees of an image that is stored as a file
    targets: Callable[[], NDArray[Any]] | None = None  # one per image
    rows: NDArray[np.int64] | None = None  # the training images that are used; None for all
    keep: Callable[[Any, Workspace], None] | None = None  # writes what is kept of the task; None for its backbone
    proxy: Proxy = field(default_factory=Proxy)


def run_training(job: TrainingJob, work: Workspace) -> dict[str, Any]:
    """Train to the end; leaves `backbone.safetensors`, or what the job keeps, and `history.json` in the workspace."""
    require_labels(job.images, job.proxy)
    machine: Machine = work.machine
    stream = streams(job.images, machine)
    share = shared_cpus(machine, stream)
    held = {  # on each node once, for as long as this function runs
        "images": None if stream else once_per_node(partial(_load, job.images, job.rows)),
        "targets": None if job.targets is None else once_per_node(job.targets),
    }
    config = {"job": job, "work": work, "share": share, **held}
    on_workers(_worker, config, share.per_worker, job.key, job.label, work)
    history: list[Record] = work.read_json("history.json")
    return {
        "epochs": len(history),
        "final": history[-1],
        "workers": int(history[-1].get("workers", machine.workers)),
        "threads": share.threads,
        "streamed": stream,
    }


def _worker(config: dict[str, Any]) -> str | None:
    """One Ray Train worker. A loss that diverged is returned, not raised: trying again would only repeat it."""
    try:
        _train_on_worker(config)
    except ValueError as error:
        cause = root_cause(error)
        if isinstance(cause, Diverged) and cause.good:
            return f"{cause}: {config['work'].scratch.path(CHECKPOINT)}"
        return refusal(error)
    return None


@dataclass(frozen=True)
class Prepared:
    """What a worker needs before the workers of a training wait for each other."""

    task: nn.Module
    images: Input
    targets: NDArray[Any] | None
    look: Look | None


def _train_on_worker(config: dict[str, Any]) -> None:
    import ray
    import ray.train
    from ray.train.torch import get_device, prepare_model

    job: TrainingJob = config["job"]
    work: Workspace = config["work"]
    share: Share = config["share"]
    torch.set_num_threads(share.threads)
    torch.manual_seed(job.seed)  # heads are initialised from the global state
    context = ray.train.get_context()
    shard = Shard(context.get_world_rank(), context.get_world_size())

    def prepare() -> Prepared:
        task = job.make().to(get_device())
        images: Input = (
            Streamed(job.images, job.cut, share, job.rows)
            if config["images"] is None
            else InMemory(ray.get(config["images"]))
        )
        targets = None if config["targets"] is None else ray.get(config["targets"])
        return Prepared(task, images, targets, proxy_of(job) if shard.rank == 0 else None)

    ready = agreed(prepare, shard.world)
    board = work.machine.board

    def tell(kind: str, record: Record) -> None:
        if shard.rank == 0 and board is not None:
            board.post.remote({"kind": kind, "label": job.label, "key": job.key, **record})

    history = train(
        ready.task,
        ready.images,
        ready.targets,
        job.optimiser,
        job.seed,
        shard=shard,
        parallel=lambda module: prepare_model(module, move_to_device=False),
        # Read once: a network file system may show another worker an older one, and they would begin at two epochs.
        resume=by_first(lambda: last_checkpoint(work.scratch), shard),
        hooks=Hooks(
            save=lambda state: save_epoch(work.scratch, state),
            save_within=lambda state: save_if_possible(work.scratch, WITHIN, state),
            on_epoch=lambda record: tell("epoch", record),
            on_step=lambda record: tell("step", record),
            look=ready.look,
        ),
    )
    if shard.rank == 0:
        if job.keep is not None:
            job.keep(ready.task, work)
        else:
            assert isinstance(ready.task.backbone, Backbone)
            write_backbone(ready.task.backbone, job.net, work)
        work.write_json("history.json", history)


def _load(images: Artifact, rows: NDArray[np.int64] | None) -> NDArray[np.uint8]:
    if rows is None:
        return load_split(images, "train")
    data = data_of(images)
    return row_reader(images, "train")(rows, lambda content, _: clean_view(content, data))


def save_epoch(scratch: Folder, state: bytes) -> None:
    """A copy, not a rename, which object stores do not have: at every moment there is a whole one to continue from."""
    if scratch.exists(CHECKPOINT):
        scratch.write_bytes(EARLIER, scratch.read_bytes(CHECKPOINT))
    scratch.write_bytes(CHECKPOINT, state)
    scratch.delete(WITHIN)


def last_checkpoint(scratch: Folder) -> bytes | None:
    """The one that got furthest: a kill may leave one within an epoch that is complete by now."""
    return furthest_checkpoint(scratch, CHECKPOINT, WITHIN)


def require_labels(images: Artifact, proxy: Proxy) -> None:
    if proxy.every and not class_counts_of(images, "train"):
        raise ValueError(f"proxy.every={proxy.every}: the training images have no labels, use 0")


def proxy_of(job: TrainingJob) -> Look | None:
    """The look at labelled training images that `proxy` asks for."""
    if not job.proxy.every:
        return None
    data, labels = data_of(job.images), labels_of(job.images, "train")
    rows = proxy_rows(labels, job.proxy.images)
    pixels = row_reader(job.images, "train")(rows, lambda content, _: clean_view(content, data))
    return look_at(job.proxy, pixels, labels[rows])


def write_backbone(backbone: Backbone, net: Net, work: Workspace) -> None:
    work.write_via("backbone.safetensors", lambda path: save_backbone(backbone, net, path, {"key": work.key}))


def training_estimate(images: Artifact, net: Net, optimiser: Optimiser, views: float = 1, share: float = 1) -> Estimate:
    """Counts exactly; memory and disk to about a factor of two, from the number of parameters and activations.

    `share` is what is used of the training images.
    """
    data, n = data_of(images), max(1, round(count_of(images, "train") * share))
    with torch.device("meta"):
        parameters = sum(p.numel() for p in build_backbone(net, 0).parameters())
    steps = steps_per_epoch(n, optimiser) * optimiser.epochs
    shown = optimiser.batch // optimiser.accumulate * views
    activations = round(shown * data.image_size**2) * 16 * 40  # about 40 maps of 16 channels at full size
    counts = f"{optimiser.epochs} epochs, {steps} steps of {optimiser.batch}" + (
        f" x {views:g} views" if views > 1 else ""
    )
    weights = parameters * (20 if optimiser.ema else 16)
    return Estimate(counts, weights + activations * 4 + n * data.image_size**2 * 3, parameters * 4)
