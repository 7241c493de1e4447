"""Runs a task's training on Ray Train workers, from the last checkpoint if there is one, and saves the backbone.

Checkpoints are files of the stage's scratch folder, written atomically after every epoch. They belong to the stage,
not to a Ray run, so a new driver on a new cluster continues where the old one was killed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from bownet.config import Net, Optimiser
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import save_backbone
from bownet.nets.taps import Backbone
from bownet.training import Hooks, InMemory, Input, Record, Shard, steps_per_epoch, train
from pipelines.machine import Machine
from pipelines.stages.inputs import Cut, Share, Streamed, once_per_node, shared_cpus, streams
from pipelines.stages.pictures import count_of, data_of, load_split
from pipelines.store import Artifact, Estimate, Workspace

CHECKPOINT = "checkpoint.pt"
MAX_FAILURES = 8  # of workers or nodes, after which something else must be wrong


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


def run_training(job: TrainingJob, work: Workspace) -> dict[str, Any]:
    """Train to the end; leaves `backbone.safetensors` and `history.json` in the workspace."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    machine: Machine = work.machine
    stream = streams(job.images, machine)
    share = shared_cpus(machine, stream)
    held = {  # on each node once, for as long as this function runs
        "images": None if stream else once_per_node(partial(load_split, job.images, "train")),
        "targets": None if job.targets is None else once_per_node(job.targets),
    }
    per_worker: dict[str, float] = {"CPU": share.per_worker}
    loop: Any = _worker  # Ray's annotations know neither its value
    trainer: Any = TorchTrainer(  # nor that of the result
        loop,
        train_loop_config={"job": job, "work": work, "share": share, **held},
        scaling_config=ScalingConfig(
            num_workers=machine.workers,
            use_gpu=machine.gpu,
            resources_per_worker=per_worker | ({"GPU": 1} if machine.gpu else {}),
        ),
        run_config=RunConfig(
            name=f"{job.key}-{time.time_ns()}",
            storage_path=work.scratch.path("ray_train"),
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
        ),
    )
    refusal = _fit(trainer).return_value
    if refusal:
        raise ValueError(refusal)
    history: list[Record] = work.read_json("history.json")
    return {
        "epochs": len(history),
        "final": history[-1],
        "workers": machine.workers,
        "threads": share.threads,
        "streamed": stream,
    }


def _fit(trainer: Any) -> Any:
    """`trainer.fit()` in a thread: in the main one Ray Train takes Ctrl-C for itself and ends without a word."""
    outcome: queue.Queue[Any] = queue.Queue()

    def fit() -> None:
        try:
            outcome.put(trainer.fit())
        except BaseException as error:
            outcome.put(error)

    threading.Thread(target=fit, daemon=True).start()
    result = outcome.get()
    if isinstance(result, BaseException):
        raise result
    return result


def _worker(config: dict[str, Any]) -> str | None:
    """One Ray Train worker. A loss that diverged is returned, not raised: trying again would only repeat it."""
    try:
        _train_on_worker(config)
    except ValueError as error:
        return str(error)
    return None


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
    task = job.make().to(get_device())
    images: Input = (
        Streamed(job.images, job.cut, share) if config["images"] is None else InMemory(ray.get(config["images"]))
    )
    board = work.machine.board

    def tell(kind: str, record: Record) -> None:
        if shard.rank == 0 and board is not None:
            board.post.remote({"kind": kind, "label": job.label, "key": job.key, **record})

    history = train(
        task,
        images,
        None if config["targets"] is None else ray.get(config["targets"]),
        job.optimiser,
        job.seed,
        shard=shard,
        parallel=lambda module: prepare_model(module, move_to_device=False),
        resume=work.scratch.read_bytes(CHECKPOINT) if work.scratch.exists(CHECKPOINT) else None,
        hooks=Hooks(
            save=lambda state: work.scratch.write_bytes(CHECKPOINT, state),
            on_epoch=lambda record: tell("epoch", record),
            on_step=lambda record: tell("step", record),
        ),
    )
    if shard.rank == 0:
        assert isinstance(task.backbone, Backbone)
        write_backbone(task.backbone, job.net, work)
        work.write_json("history.json", history)


def write_backbone(backbone: Backbone, net: Net, work: Workspace) -> None:
    work.write_via("backbone.safetensors", lambda path: save_backbone(backbone, net, path, {"key": work.key}))


def training_estimate(images: Artifact, net: Net, optimiser: Optimiser, views: float = 1) -> Estimate:
    """Counts exactly; memory and disk to about a factor of two, from the number of parameters and activations."""
    data, n = data_of(images), count_of(images, "train")
    with torch.device("meta"):
        parameters = sum(p.numel() for p in build_backbone(net, 0).parameters())
    steps = steps_per_epoch(n, optimiser) * optimiser.epochs
    activations = round(
        optimiser.batch * views * data.image_size**2 * 16 * 40
    )  # about 40 maps of 16 channels at full size
    counts = f"{optimiser.epochs} epochs, {steps} steps of {optimiser.batch}" + (
        f" x {views:g} views" if views > 1 else ""
    )
    return Estimate(counts, parameters * 16 + activations * 4 + n * data.image_size**2 * 3, parameters * 4)
