"""A bare PyTorch loop in a process of its own: the other side of `benchmarks/train.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.turns import STEPS, Player
from bownet.config import Student
from bownet.nets.build import build_backbone
from bownet.tasks.bow import BowTask

WORDS, BATCH, ARCH = 2048, 128, "wrn-16-2"


def student() -> Student:
    return Student(arch=ARCH)


def words_of(images: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    return np.random.default_rng(0).integers(WORDS, size=(images, 1, 8, 8)).astype(np.uint16)


def main(folder: Path, name: str, turns: int, threads: int) -> None:
    torch.set_num_threads(threads)
    images = np.load(folder / "images.npy")
    words = words_of(len(images))
    task = BowTask(build_backbone(student().net, 0).to(memory_format=torch.channels_last), WORDS, student())
    optimiser = torch.optim.SGD(task.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    generator, player = torch.Generator().manual_seed(0), Player(folder, name)
    order = np.random.default_rng(0).permutation(len(images))
    for step in range((turns + 1) * STEPS):
        player.step()
        rows = order[step * BATCH % len(images) :][:BATCH]
        x, y = torch.from_numpy(images[rows]), torch.from_numpy(words[rows].astype(np.int32))
        loss, _ = task(x, y, generator)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    player.step()  # the time of the last turn


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
