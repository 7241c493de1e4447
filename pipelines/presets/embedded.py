"""Experiments on the embedded scenes, which need no download."""

from __future__ import annotations

from collections.abc import Callable

from bownet.config import (
    Data,
    Experiment,
    Fewshot,
    Linear,
    Optimiser,
    Perturbation,
    Student,
    Teacher,
    Vocabulary,
)


def demo() -> Experiment:
    """Random, RotNet, BoWNet and BoWNet x2 on the embedded scenes; minutes on two CPU cores.

    Command: make demo, or python pipelines/full.py demo
    Cost: 3 to 7 minutes on two cores. Linear accuracy, mean of seeds 0, 1, 2: random 18.5, RotNet 38.7, BoWNet
    50.7; BoWNet x2 with seed 0: 50.7.
    """
    return Experiment(
        name="demo",
        scale="small",
        rounds=2,
        data=Data(kind="scenes", train=4000, test=1200, novel_per_class=100),
        teacher=Teacher(
            arch="wrn-10-1",
            head_layers=1,
            pad=2,
            optimiser=Optimiser(epochs=3, iterations_per_epoch=None, batch=32, schedule="cosine"),
        ),
        vocabulary=Vocabulary(size=128),
        student=Student(
            arch="wrn-10-1",
            cutmix=False,
            perturbation=Perturbation(crop_area=(0.5, 1.0)),
            optimiser=Optimiser(epochs=14, iterations_per_epoch=None, batch=64, lr=0.3, schedule="cosine"),
        ),
        linear=Linear(batch_norm=True),
    )


def smoke() -> Experiment:
    """Every stage of the demo at the smallest useful size, in about a minute; its scores mean nothing.

    Command: python pipelines/full.py smoke
    """
    return Experiment(
        name="smoke",
        scale="tiny",
        rounds=1,
        data=Data(kind="scenes", train=240, test=120, novel_per_class=20, shard_size=120, image_size=16),
        teacher=Teacher(
            arch="wrn-10-1",
            head_layers=1,
            pad=2,
            optimiser=Optimiser(epochs=1, iterations_per_epoch=None, batch=32, schedule="cosine"),
        ),
        vocabulary=Vocabulary(size=16, iterations=5),
        student=Student(
            arch="wrn-10-1",
            optimiser=Optimiser(epochs=2, iterations_per_epoch=None, batch=32, schedule="cosine"),
        ),
        linear=Linear(epochs=5, batch_norm=True),
        fewshot=Fewshot(shots=(1, 5), episodes=50),
    )


PRESETS: dict[str, Callable[[], Experiment]] = {"demo": demo, "smoke": smoke}
