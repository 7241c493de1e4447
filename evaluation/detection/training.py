"""Fine-tuning: a detector, its images and the settings go in; the detector is trained in place, by SGD in steps.

It knows nothing of Ray. Images, crops and sampled regions come from (seed, step, rank) alone, so that a run which goes
on from a checkpoint takes exactly the steps that an undisturbed one takes with as many workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bownet.config import Detection
from bownet.training import ALONE, Record, Shard
from bownet.training.checkpoint import Checkpoint, unpack
from evaluation.detection.detector import Detector
from evaluation.detection.objects import Objects
from evaluation.detection.views import Pixels, View, random_view

BATCH_OF_LR = 16  # images that `detection.lr` is meant for
WARMUP_FROM = 0.001  # of the rate, at the first step
DROP = 0.1
MOMENTUM = 0.9
PARTS = 25  # of a run: each has a record and ends with a checkpoint
SECONDS_BETWEEN_CHECKPOINTS = 600.0
STEPS_BETWEEN_LOOKS = {"cuda": 20, "cpu": 1}  # at the loss: each waits for the device and for all workers


class Pictures(Protocol):
    """Training images with their objects, wherever they are."""

    def __len__(self) -> int: ...

    def read(self, row: int) -> tuple[Pixels, Objects]: ...


@dataclass(frozen=True)
class Watch:
    """What the surroundings provide: where checkpoints go, and who is told about progress."""

    save: Callable[[bytes], None] = lambda state: None  # on rank 0
    tell: Callable[[Record], None] = lambda record: None


def rate(settings: Detection, step: int) -> float:
    """The learning rate of a step, counted from 0."""
    warm = min(1.0, step / settings.warmup) if settings.warmup else 1.0
    dropped = DROP ** sum(step >= drop for drop in settings.drops)
    return settings.lr * settings.batch / BATCH_OF_LR * dropped * (WARMUP_FROM * (1 - warm) + warm)


def step_rows(images: int, batch: int, seed: int, step: int) -> NDArray[np.int64]:
    """Row numbers of one batch of an endless sequence of passes, each of which shows every image once."""
    places = np.arange(step * batch, (step + 1) * batch)
    passes = {
        int(number): np.random.Generator(np.random.Philox(key=[seed, int(number)])).permutation(images)
        for number in np.unique(places // images)
    }
    return np.array([passes[int(place) // images][place % images] for place in places])


def check_workers(settings: Detection, workers: int) -> None:
    if settings.batch < workers:
        raise ValueError(
            f"detection.batch={settings.batch}: too few images for {workers} workers; use fewer workers or more images"
        )


def ends_of_parts(steps: int) -> set[int]:
    """Steps after which a part of the run is over, and its record and checkpoint are written."""
    return {math.ceil(steps * (i + 1) / PARTS) for i in range(PARTS)}


def fit(
    detector: Detector,
    pictures: Pictures,
    settings: Detection,
    seed: int,
    *,
    shard: Shard = ALONE,
    parallel: Callable[[nn.Module], nn.Module] = lambda module: module,
    resume: bytes | None = None,
    watch: Watch | None = None,
) -> list[Record]:
    """Train on the detector's own device; returns a record per part, including those before a resume."""
    watch = watch or Watch()
    check_workers(settings, shard.world)
    device = next(detector.parameters()).device
    if shard.world > 1 and device.type == "cuda":  # torch has it for GPUs only
        nn.SyncBatchNorm.convert_sync_batchnorm(detector)
    optimiser = torch.optim.SGD(decayed_groups(detector, settings.weight_decay), lr=0.0, momentum=MOMENTUM)
    history: list[Record] = []
    first = 0
    if resume:
        history, first = _restored(resume, detector, optimiser)
    together: Any = parallel(detector)  # after a checkpoint is loaded: joining makes all weights those of rank 0
    detector.train()
    ends = ends_of_parts(settings.steps)
    saved, part = time.monotonic(), _Part(device, shard)
    for step, (views, share) in enumerate(_views_ahead(pictures, settings, seed, shard, first), first):
        for group in optimiser.param_groups:
            group["lr"] = rate(settings, step)
        optimiser.zero_grad(set_to_none=True)
        losses: dict[str, Tensor] = together(views, mixed(seed, step, shard.rank))
        loss = torch.stack([*losses.values()]).sum() * share
        loss.backward()
        optimiser.step()
        part.add({"loss": loss.detach(), **{name: value.detach() * share for name, value in losses.items()}})
        done, ended = step + 1, step + 1 in ends
        if not (ended or done % STEPS_BETWEEN_LOOKS[device.type] == 0):
            continue
        means = part.means()
        if not all(map(math.isfinite, means.values())):
            raise ValueError(
                f"loss={means['loss']:.4g} at step {done} of {settings.steps}, at a rate of {rate(settings, step):g}: "
                "it diverged, use a smaller detection.lr or a longer detection.warmup"
            )
        watch.tell({"done": done / settings.steps, "ended": float(ended), "loss": means["loss"]})
        if ended:
            speed = part.steps * settings.batch / part.seconds()
            told = {"step": done, "lr": rate(settings, step), "workers": shard.world, "images_per_second": speed}
            history.append(means | told | {"gpu": float(device.type == "cuda")})
            part = _Part(device, shard)
        # Sums of a part that has begun are not kept: a run that goes on has a record of fewer steps, and equal weights.
        due = time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS
        if shard.rank == 0 and (ended or due):
            state = optimiser.state_dict()
            watch.save(Checkpoint(detector.state_dict(), state, history, running={"steps": done}).pack())
            saved = time.monotonic()
    return history


def decayed_groups(detector: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Parameters that are trained; those of norms are not decayed, as in detectron2."""
    norms = {id(p) for module in detector.modules() if isinstance(module, _BatchNorm) for p in module.parameters()}
    trained = [p for p in detector.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if id(p) not in norms], "weight_decay": decay},
        {"params": [p for p in trained if id(p) in norms], "weight_decay": 0.0},
    ]


def mixed(seed: int, step: int, rank: int) -> int:
    """One 63-bit seed from three numbers, without the collisions of sums."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def _views_ahead(
    pictures: Pictures, settings: Detection, seed: int, shard: Shard, first: int
) -> Iterator[tuple[list[View], float]]:
    """This worker's images of every step, read while the step before is computed, and the weight of its loss."""

    def read(step: int) -> tuple[list[View], float]:
        rows = step_rows(len(pictures), settings.batch, seed, step)
        mine = shard.part(rows)
        return [view(step, int(row)) for row in mine], len(mine) * shard.world / len(rows)

    def view(step: int, row: int) -> View:
        rng = np.random.Generator(np.random.Philox(key=[seed, (step << 40) + row]))
        pixels, objects = pictures.read(row)
        return random_view(pixels, objects, settings.train_sizes, settings.max_size, rng)

    with ThreadPoolExecutor(1) as reader:
        following: Future[tuple[list[View], float]] = reader.submit(read, first)
        for step in range(first, settings.steps):
            views = following.result()
            if step + 1 < settings.steps:
                following = reader.submit(read, step + 1)
            yield views


class _Part:
    """Sums over the steps of a part, kept on the device."""

    def __init__(self, device: torch.device, shard: Shard) -> None:
        self._device, self._shard = device, shard
        self._sums: dict[str, Tensor] = {}
        self._started = time.perf_counter()
        self.steps = 0

    def add(self, values: dict[str, Tensor]) -> None:
        self._sums = {name: self._sums[name] + v if name in self._sums else v for name, v in values.items()}
        self.steps += 1

    def means(self) -> Record:
        """Of all workers, which must call it at the same step: all come to the same numbers."""
        sums_M = torch.stack([*self._sums.values()])
        if self._shard.world > 1:
            torch.distributed.all_reduce(sums_M)
        mean_M = sums_M / (self.steps * self._shard.world)
        return dict(zip(self._sums, mean_M.tolist(), strict=True))

    def seconds(self) -> float:
        return time.perf_counter() - self._started


def _restored(resume: bytes, detector: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[list[Record], int]:
    checkpoint = unpack(resume)
    detector.load_state_dict(checkpoint.task)
    optimiser.load_state_dict(checkpoint.optimiser)
    return checkpoint.history, int(checkpoint.running["steps"])
