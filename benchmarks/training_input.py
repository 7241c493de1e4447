"""Training with all of its input against training on one fixed batch: what batching, g(x) and CutMix cost a step."""

from __future__ import annotations

import os

import numpy as np
import torch

from benchmarks.bare_training import BATCH, WORDS, student, words_of
from benchmarks.harness import Result, compare
from bownet.config import Optimiser
from bownet.images.augment import to_float
from bownet.nets.build import build_backbone
from bownet.tasks.bow import BowTask, soft_cross_entropy
from bownet.training import InMemory, train


def measure(small: bool) -> list[Result]:
    """WRN-16-2 on 32x32 pictures, K=2048, as the paper trains it."""
    steps, repeats = (1, 2) if small else (10, 11)
    images = np.random.default_rng(0).integers(256, size=(BATCH * steps, 32, 32, 3), dtype=np.uint8)
    words = words_of(len(images))
    once = Optimiser(epochs=1, iterations_per_epoch=None, batch=BATCH, drops=())

    def task() -> BowTask:
        return BowTask(build_backbone(student().net, 0).to(memory_format=torch.channels_last), WORDS, student())

    ours_task, bare_task = task(), task()
    x = to_float(torch.from_numpy(images[:BATCH]))
    y = torch.softmax(torch.randn(BATCH, WORDS, generator=torch.Generator().manual_seed(0)), 1)

    def ours() -> None:
        train(ours_task, InMemory(images), words, once, seed=0)

    def bare() -> None:
        optimiser = torch.optim.SGD(bare_task.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        bare_task.train()
        for _ in range(steps):
            feature = bare_task.backbone(x, (bare_task.backbone.pooled,))[bare_task.backbone.pooled]
            loss = soft_cross_entropy(bare_task.head(feature), y)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

    threads = os.cpu_count() or 1
    name = "training step on one fixed batch / with all input"
    return [compare(name, ours, bare, bar=0.93, threads=threads, repeats=repeats, seconds=0)]
