"""The training loop: steps, epochs, what is recorded of them, and checkpoints between and within them.

It knows nothing of Ray. Randomness comes from (seed, step, rank) alone, so that a run which continues from a
checkpoint takes exactly the steps that an undisturbed one takes.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bownet.config import Optimiser
from bownet.training.batches import ALONE, Input, Shard, batches, check_workers, steps_per_epoch
from bownet.training.checkpoint import Checkpoint, Record, Running, unpack
from bownet.training.divergence import diverged, has_failed
from bownet.training.learner import Learner, learning_rate

T = TypeVar("T")

SECONDS_BETWEEN_LOOKS = 1.0  # at the running loss; each one waits for the device and for all workers
SECONDS_BETWEEN_CHECKPOINTS = 600.0  # within an epoch


@dataclass(frozen=True)
class Hooks:
    """What the surroundings provide: where checkpoints go, who is told about progress, who looks at the features."""

    save: Callable[[bytes], None] = lambda state: None  # after every epoch, which is known to be good
    save_within: Callable[[bytes], None] = lambda state: None  # every ten minutes of an epoch
    on_epoch: Callable[[Record], None] = lambda record: None
    on_step: Callable[[Record], None] = lambda record: None  # at most about once a second
    look: Callable[[nn.Module, int], dict[str, float]] | None = None  # at the task after an epoch; on rank 0 only


SILENT = Hooks()


@runtime_checkable
class Renews(Protocol):
    """A task that makes its own targets. It is asked before every epoch, numbered from 0, and answers None to keep
    the targets it has; the same weights must give the same targets. `images` are all of them, in order."""

    def renew(self, epoch: int, images: Iterable[Tensor]) -> NDArray[Any] | None: ...


def train(
    task: nn.Module,
    images: Input,
    targets: NDArray[Any] | None,
    config: Optimiser,
    seed: int,
    *,
    shard: Shard = ALONE,
    parallel: Callable[[nn.Module], nn.Module] = lambda task: task,
    resume: bytes | None = None,
    hooks: Hooks = SILENT,
) -> list[Record]:
    """Train `task` in place on its own device; returns one record per epoch, including those before a resume."""
    device = next(task.parameters()).device
    n, steps = len(images), steps_per_epoch(len(images), config)
    check_workers(n, config, shard.world, device.type == "cuda")
    if config.sync_batch_norm and shard.world > 1:
        nn.SyncBatchNorm.convert_sync_batchnorm(task)  # in place: a task is never itself a batch norm
    learner = Learner(task, config)
    history: list[Record] = []
    running, start, renewed = Running(), None, None
    if resume:
        history, running, start, renewed = _restored(resume, task, learner)
    learner.connect(task, parallel)
    generator = torch.Generator()  # on the CPU: the same draws on every device, and none that waits for a GPU
    saved = told = time.monotonic()

    def state(running: dict[str, Any]) -> bytes:
        kept = None if renewed is None else torch.from_numpy(renewed)
        return Checkpoint(
            task.state_dict(), history=history, running=running, start=start, targets=kept, **learner.state()
        ).pack()

    for epoch in range(len(history), config.epochs):
        if running.steps == 0:  # the targets of an epoch that has begun are in its checkpoint
            new = _renewed(task, epoch, _told(images, epoch, config, hooks), shard)
            renewed = renewed if new is None else new
        own = targets if renewed is None else renewed
        task.train()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        tally, pace = Tally(running, shard, device), Pace(running)
        parts = tally.timed(images.epoch(config, seed, epoch, shard, first=running.steps))
        rows_of = batches(n, config, seed, epoch, first=running.steps)
        for i, (rows, x) in enumerate(zip(rows_of, parts, strict=True), running.steps):
            step = epoch * steps + i
            generator.manual_seed(_mix(seed, step, shard.rank))
            lr = learning_rate(config, step / steps)
            mine = shard.part(rows)
            if len(x) != len(mine):
                raise ValueError(f"images: {len(x)} came in step {i + 1} where {len(mine)} were due; look at the input")
            # torch indexes int32 on every device; uint16, as words are stored, it does not
            y = None if own is None else torch.from_numpy(own[mine].astype(np.int32)).to(device, non_blocking=True)
            share = len(mine) * shard.world / len(rows)
            tally.add(learner.step(x.to(device, non_blocking=True), y, generator, lr, share), len(rows))
            last = i + 1 == steps
            if not (last or pace.is_due(i)):
                continue
            seen = tally.look()
            pace.plan(i, seen.seconds)
            start = seen.means["loss"] if start is None else start
            if has_failed(seen.means, start, i + 1, last, epoch * steps, getattr(task, "may_rise", False)):
                raise diverged(seen.means, epoch, f"{i + 1} of {steps}", lr)
            if last:
                break
            if time.monotonic() - told > SECONDS_BETWEEN_LOOKS:
                told = time.monotonic()
                progress = {"epoch": epoch, "epochs": config.epochs, "done": (i + 1) / steps}
                hooks.on_step(progress | {"loss": seen.means["loss"], "images_per_second": seen.images / seen.seconds})
            if shard.rank == 0 and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                hooks.save_within(state(vars(seen.running)))
                saved = time.monotonic()
        assert next(parts, None) is None, "more batches than steps"
        record = seen.means | {
            "epoch": epoch + 1,
            "epochs": config.epochs,
            "lr": lr,
            "workers": shard.world,
            "images_per_second": seen.images / seen.seconds,
            "input_wait": seen.input_wait,
            **seen.peaks,
            "time": time.time(),
        }
        if hooks.look and shard.rank == 0:
            record |= _looked(task, learner, hooks.look, epoch + 1)
        history.append(record)
        running = Running()
        by_first(lambda: hooks.save(state({})), shard)
        saved = time.monotonic()
        hooks.on_epoch(record)
    if learner.average:
        learner.average.keep()
    return history


@dataclass(frozen=True)
class Look:
    """What all workers know at the same step of an epoch, over its steps so far."""

    means: Record
    images: int
    seconds: float
    input_wait: float  # share of the time
    peaks: Record
    running: Running


class Tally:
    """Sums over the steps of an epoch, kept on the device: only a look waits for it."""

    def __init__(self, running: Running, shard: Shard, device: torch.device) -> None:
        self._before, self._shard, self._device = running, shard, device
        self._steps, self._images, self._waited = running.steps, running.images, running.waited
        self._started = time.perf_counter() - running.seconds
        self._names: list[str] = running.names
        self._sums_M: Tensor | None = None
        if running.sums_WM is not None:
            self._sums_M = _own_sums(running.sums_WM, shard).to(device)

    def timed(self, parts: Iterator[Tensor]) -> Iterator[Tensor]:
        """The same parts; the time until each one is there counts as waiting."""
        while True:
            asked = time.perf_counter()
            part = next(parts, None)
            self._waited += time.perf_counter() - asked
            if part is None:
                return
            yield part

    def add(self, values: dict[str, Tensor], images: int) -> None:
        """Values of one step, of this worker; the number of images is that of all."""
        stacked_M = torch.stack([value.reshape(()) for value in values.values()])
        self._sums_M = stacked_M if self._sums_M is None else self._sums_M + stacked_M
        self._names = list(values)
        self._steps += 1
        self._images += images

    def look(self) -> Look:
        """Every worker must call it at the same step; all come to the same numbers, and so to the same conclusions."""
        assert self._sums_M is not None
        seconds = time.perf_counter() - self._started
        here = torch.tensor([seconds, self._waited, _peak_memory(), _peak_gpu_memory(self._device)])
        row = torch.cat([self._sums_M.double(), here.double().to(self._device)])
        rows = [row]
        if self._shard.world > 1:
            rows = [torch.empty_like(row) for _ in range(self._shard.world)]
            torch.distributed.all_gather(rows, row)
        seen_WM = torch.stack(rows).cpu()
        sums_WM, (seconds_W, waited_W, memory_W, gpu_W) = seen_WM[:, : len(self._names)].float(), seen_WM[:, -4:].T
        mean_M = (sums_WM / (self._steps * self._shard.world)).sum(0)
        peaks = {"peak_memory_gb": memory_W.max().item()}
        if self._device.type == "cuda":
            peaks["peak_gpu_memory_gb"] = gpu_W.max().item()
        took, waited = seconds_W[0].item(), waited_W[0].item()  # of rank 0, whose clock all follow
        return Look(
            dict(zip(self._names, mean_M.tolist(), strict=True)),
            self._images,
            took,
            (waited_W / seconds_W).mean().item(),
            peaks,
            Running(self._steps, self._images, took, waited, self._names, sums_WM),
        )


def _own_sums(sums_WM: Tensor, shard: Shard) -> Tensor:
    """Of a checkpoint: this worker's own, or for another number of workers an equal share of the same mean."""
    if len(sums_WM) == shard.world:
        return sums_WM[shard.rank]
    return sums_WM.mean(0)


class Pace:
    """Looks at steps that all workers agree on, about `SECONDS_BETWEEN_LOOKS` apart by the clock of rank 0."""

    def __init__(self, running: Running) -> None:
        self._next, self._stride, self._seconds = running.steps, 1, running.seconds

    def is_due(self, i: int) -> bool:
        return i >= self._next

    def plan(self, i: int, seconds: float) -> None:
        per_step = (seconds - self._seconds) / self._stride
        wished = int(SECONDS_BETWEEN_LOOKS / max(per_step, 1e-9))
        self._stride = max(1, min(2 * self._stride, wished))
        self._next, self._seconds = i + self._stride, seconds


def _peak_memory() -> float:
    """Of this process since its start, in GB; images that it shares with others of its node count too."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _peak_gpu_memory(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0


def _told(images: Input, epoch: int, config: Optimiser, hooks: Hooks) -> Iterator[Tensor]:
    """All images in order; looking at them takes long, and people and watchdogs must see that it goes on."""
    told = time.monotonic()
    for part in images:
        yield part
        if time.monotonic() - told > SECONDS_BETWEEN_LOOKS:
            told = time.monotonic()
            hooks.on_step({"epoch": epoch, "epochs": config.epochs, "done": 0.0})


def _renewed(task: nn.Module, epoch: int, images: Iterable[Tensor], shard: Shard) -> NDArray[Any] | None:
    """New targets for a task that makes its own. Rank 0 makes them, for no two workers may differ in a bit."""
    if not isinstance(task, Renews):
        return None
    made: NDArray[Any] | None = by_first(lambda: task.renew(epoch, images), shard)
    if shard.world > 1 and made is not None:  # with its targets a task may have made a new head
        for value in task.state_dict().values():
            torch.distributed.broadcast(value, src=0)
    return made


def by_first(make: Callable[[], T], shard: Shard) -> T:
    """What rank 0 makes, on all workers; a ValueError of its own is raised by all, for they would wait for it."""
    if shard.world == 1:
        return make()
    made: list[Any] = [None]
    if shard.rank == 0:
        try:
            made = [make()]
        except ValueError as error:
            made = [error]
    torch.distributed.broadcast_object_list(made, src=0)
    if isinstance(made[0], ValueError):
        raise made[0]
    return made[0]


def _looked(task: nn.Module, learner: Learner, look: Callable[[nn.Module, int], Record], epoch: int) -> Record:
    """At the weights that would be kept if this epoch were the last."""
    if learner.average is None:
        return look(task, epoch)
    with learner.average.shown():
        return look(task, epoch)


def _mix(seed: int, step: int, rank: int) -> int:
    """One 63-bit seed from three numbers, without the collisions of sums."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def _restored(
    resume: bytes, task: nn.Module, learner: Learner
) -> tuple[list[Record], Running, float | None, NDArray[Any] | None]:
    checkpoint = unpack(resume)
    task.load_state_dict(checkpoint.task)
    learner.load(checkpoint.optimiser, checkpoint.scaler, checkpoint.average)
    targets = None if checkpoint.targets is None else checkpoint.targets.numpy()
    return checkpoint.history, Running(**checkpoint.running), checkpoint.start, targets
