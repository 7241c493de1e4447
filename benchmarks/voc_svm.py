"""VOC07 SVMs: all classes, folds and costs on every core through Ray against one core, and against a plain loop."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.harness import Result, compare
from bownet.config import Voc07Svm
from evaluation.score import Score
from evaluation.voc07_svm import CLASS_WEIGHT, COSTS, TOLERANCE, normalised, score_tap
from pipelines.machine import Machine
from pipelines.stages.fan_out import fan_out


def measure(small: bool, machine: Machine) -> list[Result]:
    images, values, classes, repeats = (60, 300, 3, 2) if small else (1200, 9216, 20, 5)
    config = Voc07Svm(max_iter=50) if small else Voc07Svm()
    train, train_NC = made(images, values, classes, 0)
    test, test_MC = made(images, values, classes, 1)
    names = [f"class{c}" for c in range(classes)]
    cores = min(machine.cpus, os.cpu_count() or 1)
    scores: dict[str, Score] = {}

    def ours() -> None:
        run = fan_out(machine, "benchmark", "SVMs")
        scores["ours"] = score_tap(train, test, train_NC, test_MC, names, config, run)

    def one_core() -> None:
        scores["one core"] = score_tap(train, test, train_NC, test_MC, names, config)

    def ours_one() -> None:
        score_tap(train, test, train_NC[:, :1], test_MC[:, :1], names[:1], config)

    def plain() -> None:
        plain_loop(train, train_NC[:, 0], config)

    fits = classes * (len(COSTS[config.costs]) * config.folds + 1)
    rows = [
        compare(
            f"{fits} SVMs of {images} x {values}: one core / {cores} cores", ours, one_core, 1.7, 1, repeats, seconds=0
        ),
        compare(
            f"one of {classes} classes on one core: cross_val_score of scikit-learn / ours",
            *(ours_one, plain, 2.0, 1, 3),
            seconds=0,
        ),
    ]
    assert scores["ours"] == scores["one core"]
    return rows


def plain_loop(train: Any, presence_N: Any, config: Voc07Svm) -> None:
    """Cross-validation over the costs and the last fit, as the benchmark's programs do it."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.svm import LinearSVC

    x_ND, y_N = normalised(train), np.where(presence_N == 1, 1, -1)
    how = {"dual": True, "tol": TOLERANCE, "max_iter": config.max_iter, "random_state": config.seed}
    folds = StratifiedKFold(config.folds, shuffle=True, random_state=config.seed)
    best = max(
        COSTS[config.costs],
        key=lambda cost: cross_val_score(
            LinearSVC(C=cost, class_weight=CLASS_WEIGHT, **how), x_ND, y_N, cv=folds, scoring="average_precision"
        ).mean(),
    )
    LinearSVC(C=best, class_weight=CLASS_WEIGHT, **how).fit(x_ND, y_N)


def made(images: int, values: int, classes: int, seed: int) -> tuple[Any, Any]:
    """Features that tell of classes through noise, none negative, as after a ReLU."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(images, classes))
    mixing = np.random.default_rng(99).normal(size=(classes, values))
    features = np.maximum(hidden @ mixing + 4 * rng.normal(size=(images, values)), 0).astype(np.float32)
    return features, np.where(hidden > 1.2, 1, np.where(hidden > 1.1, 0, -1)).astype(np.int8)
