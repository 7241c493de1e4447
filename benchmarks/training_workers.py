"""Ray Train workers against a bare PyTorch loop: the same network, images, perturbation, batch and cores, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Generator, Tensor

from benchmarks import bare_training, turns
from benchmarks.bare_training import ARCH, BATCH, WORDS, student, words_of
from benchmarks.harness import Result, paired
from benchmarks.turns import STEPS, Player, play
from bownet.config import Data, Net, Optimiser
from bownet.nets.build import build_backbone
from bownet.tasks.bow import BowTask
from pipelines.machine import Machine
from pipelines.stages.images import Images
from pipelines.stages.pictures import count_of, load_split
from pipelines.stages.training import TrainingJob, run_training
from pipelines.store import Artifact, Store, Workspace

ROOT = Path(__file__).resolve().parents[1]
BARE, ONE, TWO = "bare", "one", "two"
TURNS = {True: 2, False: 15}  # if small, and if not
CORES = os.cpu_count() or 1
SETTLE = 3.0  # seconds after Ray's processes may go on: they catch up on what they have missed


class InTurns(BowTask):
    """The task of a student, whose steps wait for their turn."""

    player: Player

    def forward(
        self, images_NHWC: Tensor, words: Tensor | None, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.player.step()
        return super().forward(images_NHWC, words, generator)


def new_task(folder: Path, name: str) -> InTurns:
    task = InTurns(build_backbone(Net(arch=ARCH), 0).to(memory_format=torch.channels_last), WORDS, student())
    task.player = Player(folder, name)
    return task


def one_against_bare(small: bool, machine: Machine) -> list[Result]:
    """Speed and peak memory of one worker with all threads, and of a bare loop with as many.

    Where freed memory is used again is a matter of chance, up to a tenth of the peak: two more short trainings tell.
    """
    pairs: list[tuple[float, float]] = []
    gigabytes: list[tuple[float, float]] = []
    for count in (TURNS[small], 2, 2):
        with trainings(small, machine, count) as start:
            one = start(ONE, 1)
            command = [sys.executable, "-m", bare_training.__name__, str(start.folder), BARE, str(count), str(CORES)]
            with subprocess.Popen(command, cwd=ROOT) as bare:
                seconds = play(start.folder, [BARE, ONE], count, partial(without_ray, bare.pid))
            one.result()
            pairs = pairs or pairs_of(seconds, ONE, BARE)
            ours, other = (float((start.folder / f"{name}.memory").read_text()) for name in (ONE, BARE))
            shared = (start.folder / "images.npy").stat().st_size / 1e9  # which the bare loop has in its own memory
            gigabytes.append((ours + shared, other))
    images = count_of(start.images, "train")
    return [
        paired("bare loop / one Ray Train worker", pairs, bar=0.95),
        replace(
            paired(f"peak memory of a bare loop with {images} images / of one Ray Train worker", gigabytes, 1 / 1.1),
            unit="GB",
        ),
    ]


def two_against_one(small: bool, machine: Machine) -> list[Result]:
    """Two workers that share the threads, and one that has them all."""
    with trainings(small, machine, TURNS[small]) as start:
        running = [start(ONE, 1), start(TWO, 2)]
        seconds = play(start.folder, [ONE, TWO], TURNS[small], lambda name: nullcontext())
        for training in running:
            training.result()
    return [paired("one worker with all threads / two that share them", pairs_of(seconds, TWO, ONE), bar=0.9)]


@dataclass(frozen=True)
class Start:
    """Starts trainings on Ray Train that wait for their turns."""

    folder: Path
    images: Artifact
    count: int
    threads: ThreadPoolExecutor

    def __call__(self, name: str, workers: int) -> Future[dict[str, Any]]:
        machine = Machine(workers, CORES // workers, False, CORES)
        return self.threads.submit(on_ray_train, self.folder, name, self.images, machine, self.count)


@contextmanager
def trainings(small: bool, machine: Machine, count: int) -> Iterator[Start]:
    """Ray must believe in twice the CPUs, so that two trainings can be there at once, in turns."""
    import ray.cloudpickle

    for module in (turns, bare_training, sys.modules[__name__]):  # workers cannot import this folder
        ray.cloudpickle.register_pickle_by_value(module)
    with tempfile.TemporaryDirectory() as path, ThreadPoolExecutor(2) as threads:
        folder = Path(path)
        data = Data(train=512 if small else 50_000, test=1, novel_per_class=1)
        images = Store(folder / "store", machine=machine).get(Images(data))
        np.save(folder / "images.npy", load_split(images, "train"))
        yield Start(folder, images, count, threads)


@contextmanager
def without_ray(bare: int, name: str) -> Iterator[None]:
    """Stop all processes of Ray while the bare loop runs: it shall not pay for what surrounds the other side."""
    others = [process for process in psutil.Process().children(recursive=True) if process.pid != bare]
    if name != BARE:
        yield
        return
    for process in others:
        process.suspend()
    try:
        yield
    finally:
        for process in others:
            process.resume()
        time.sleep(SETTLE)


def pairs_of(seconds: dict[str, list[float]], ours: str, other: str) -> list[tuple[float, float]]:
    return list(zip(seconds[ours], seconds[other], strict=True))


def on_ray_train(folder: Path, name: str, images: Artifact, machine: Machine, count: int) -> dict[str, Any]:
    """All turns lie within one epoch: its end comes too rarely in a real training to count in a steady state."""
    job = TrainingJob(
        partial(new_task, folder, name),
        images,
        Net(arch=ARCH),
        Optimiser(epochs=1, iterations_per_epoch=(count + 2) * STEPS, batch=BATCH, drops=()),
        seed=0,
        label=name,
        key=name,
        targets=partial(words_of, count_of(images, "train")),
    )
    return run_training(job, Workspace(str(folder), f"artifacts/training/{name}", machine))
