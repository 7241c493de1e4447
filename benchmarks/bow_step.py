"""A step of BoWNet against a step of supervised learning with the same network, batch and threads."""

from __future__ import annotations

import os

import numpy as np
import torch

from benchmarks.bare_training import BATCH, WORDS, student, words_of
from benchmarks.harness import Result, compare
from bownet.config import Optimiser
from bownet.nets.build import build_backbone
from bownet.tasks.bow import BowTask
from bownet.tasks.supervised import supervised_task
from bownet.training import InMemory, train


def measure(small: bool) -> list[Result]:
    """Each with all that it does to its images: perturbation, CutMix and bags; or padding, cropping, flipping."""
    steps, repeats = (1, 2) if small else (10, 11)
    images = np.random.default_rng(0).integers(256, size=(BATCH * steps, 32, 32, 3), dtype=np.uint8)
    words, labels = words_of(len(images)), np.arange(len(images)) % 100
    once = Optimiser(epochs=1, iterations_per_epoch=None, batch=BATCH, drops=())
    bow = BowTask(build_backbone(student().net, 0).to(memory_format=torch.channels_last), WORDS, student())
    plain = supervised_task(build_backbone(student().net, 0).to(memory_format=torch.channels_last), 100, pad=4)
    return [
        compare(
            f"supervised step / bow step, K={WORDS}",
            lambda: train(bow, InMemory(images), words, once, seed=0),
            lambda: train(plain, InMemory(images), labels, once, seed=0),
            bar=0.85,
            threads=os.cpu_count() or 1,
            repeats=repeats,
            seconds=0,
        )
    ]
