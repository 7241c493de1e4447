"""Our side of a comparison of trainings: a student with cached words, perturbed and mixed images, our own loop.

python -m benchmarks.peers.our_training NET STEPS BATCH WORDS [PRECISION]

NET is a name of ours, or the reproduction's checkout.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn

from benchmarks.peers.pictures import IMAGES
from benchmarks.peers.turns import Every
from bownet.config import Net, Optimiser, Student
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone, global_pool
from bownet.tasks.bow import BowTask
from bownet.training import InMemory, train


class Reproduction(Backbone):
    """The network of the public reproduction, up to its last map of 256 channels."""

    def __init__(self, checkout: str) -> None:
        super().__init__()
        sys.path.insert(0, checkout)
        from model import BowNet  # type: ignore[import-not-found]

        whole = BowNet(num_classes=4, bow_training=True)
        names = (
            "resblock1_64a",
            "resblock1_64b",
            "resblock2_128a",
            "resblock2_128b",
            "resblock3_256a",
            "resblock3_256b",
        )
        first = (whole.conv1_64, whole.bn1_64, whole.relu1_64)
        self.body = nn.Sequential(*first, *(getattr(whole, name) for name in names))
        self.tap_channels, self.tap_strides = {"block3": 256, "pool": 256}, {"block3": 4, "pool": 0}

    def stages(self) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
        yield "block3", self.body
        yield "pool", global_pool


class InTurns(BowTask):
    every: Every

    def forward(
        self, images_NHWC: Tensor, words: Tensor | None, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.every.step()
        return super().forward(images_NHWC, words, generator)


def main(net: str, steps: int, batch: int, words: int, precision: str = "float32") -> None:
    every = Every(steps)
    backbone = Reproduction(net) if Path(net).is_dir() else build_backbone(Net(arch=net), 0)
    task = InTurns(backbone.to(memory_format=torch.channels_last), words, Student())
    task.every = every
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(IMAGES, 32, 32, 3), dtype=np.uint8)
    targets = rng.integers(words, size=(IMAGES, 1, 8, 8)).astype(np.uint16)
    settings = {"epochs": 1, "iterations_per_epoch": 10**6, "batch": batch, "drops": (), "precision": precision}
    train(task, InMemory(images), targets, Optimiser.model_validate(settings), 0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), *sys.argv[5:])
