"""Ray Train workers against a bare PyTorch loop: the same network, images, perturbation, batch and cores, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
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


def measure(small: bool, machine: Machine) -> list[Result]:
    """Ray must believe in twice the CPUs, so that two trainings can be there at once, in turns."""
    import ray.cloudpickle

    for module in (turns, bare_training, sys.modules[__name__]):  # workers cannot import this folder
        ray.cloudpickle.register_pickle_by_value(module)
    cores, count = os.cpu_count() or 1, 2 if small else 15
    with tempfile.TemporaryDirectory() as path, ThreadPoolExecutor(2) as trainers:
        folder = Path(path)
        images = Store(folder / "store", machine=machine).get(
            Images(Data(train=512 if small else 10_240, test=1, novel_per_class=1))
        )
        np.save(folder / "images.npy", load_split(images, "train"))
        started = [
            trainers.submit(on_ray_train, folder, name, images, Machine(workers, cores // workers, False, cores), count)
            for name, workers in ((ONE, 1), (TWO, 2))
        ]
        command = [sys.executable, "-m", bare_training.__name__, path, BARE, str(count), str(cores)]
        with subprocess.Popen(command, cwd=ROOT) as bare:

            def alive() -> None:
                assert bare.poll() is None, "the bare loop has died"
                for trainer in started:
                    if trainer.done():
                        trainer.result()

            seconds = play(folder, [BARE, ONE, TWO], count, alive)
        memory = started[0].result()["final"]["peak_memory_gb"]
        started[1].result()
        bare_memory = float((folder / f"{BARE}.memory").read_text())
    share = bare_memory / memory
    memory_name = "peak memory of a bare loop with its images / of one Ray Train worker"
    return [
        paired("bare loop / one Ray Train worker", pairs(seconds, ONE, BARE), bar=0.95),
        paired("one worker with all threads / two that share them", pairs(seconds, TWO, ONE), bar=0.9),
        Result(memory_name, share, 1 / 1.1, share >= 1 / 1.1, memory, bare_memory, (share, share), unit="GB"),
    ]


def pairs(seconds: dict[str, list[float]], ours: str, other: str) -> list[tuple[float, float]]:
    return list(zip(seconds[ours], seconds[other], strict=True))


def on_ray_train(folder: Path, name: str, images: Artifact, machine: Machine, count: int) -> dict[str, Any]:
    """One turn is one epoch, with all that comes at its end."""
    job = TrainingJob(
        partial(new_task, folder, name),
        images,
        Net(arch=ARCH),
        Optimiser(epochs=count + 2, iterations_per_epoch=STEPS, batch=BATCH, drops=()),
        seed=0,
        label=name,
        key=name,
        targets=partial(words_of, count_of(images, "train")),
    )
    return run_training(job, Workspace(str(folder), f"artifacts/training/{name}", machine))
