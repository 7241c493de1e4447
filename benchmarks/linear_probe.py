"""A linear classifier on cached features against a loop over a DataLoader with the same optimiser and schedule."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.harness import Result, compare
from bownet.config import Linear
from evaluation.linear import fit_linear, tally
from evaluation.tally import Tally

CLASSES, CHANNELS, TEST = 100, 640, 10_000


def measure(small: bool, whole: Linear | None = None) -> list[Result]:
    images, config, repeats = (640, Linear(epochs=2), 2) if small else (20_000, whole or Linear(), 3)
    generator = torch.Generator().manual_seed(0)
    centre_CD = 0.35 * torch.randn(CLASSES, CHANNELS, generator=generator)
    (x, y), (test_x, test_y) = (made(n, centre_CD, generator) for n in (images, TEST))
    accuracy: dict[str, float] = {}

    def ours() -> None:
        classifier = fit_linear(x, y, CLASSES, config, seed=0)
        accuracy["ours"] = tally(classifier, test_x, test_y).metrics()["top1"]

    def loop() -> None:
        accuracy["loop"] = percent(with_loader(x, y, config), test_x, test_y)

    name = f"linear classifier, {config.epochs} epochs, {images} x {CHANNELS}, {CLASSES} classes"
    threads = os.cpu_count() or 1
    result = compare(f"{name}: DataLoader / ours", ours, loop, 3, threads=threads, repeats=repeats, seconds=0)
    more = accuracy["ours"] - accuracy["loop"]
    sides = (accuracy["ours"], accuracy["loop"])
    return [
        result,
        Result(f"{name}: points more than the DataLoader's", more, -0.3, more >= -0.3, *sides, (more, more), "percent"),
    ]


def short(small: bool) -> list[Result]:
    """A tenth of the epochs, with as many drops of the rate."""
    return measure(small, Linear(epochs=6, drop_every=1))


def made(n: int, centre_CD: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features as a network's last layer has them, none of them negative, of classes that overlap."""
    y = torch.randint(len(centre_CD), (n,), generator=generator)
    return (centre_CD[y] + 2 * torch.randn(n, centre_CD.shape[1], generator=generator)).relu_(), y


def with_loader(x: Tensor, y: Tensor, config: Linear) -> nn.Linear:
    torch.manual_seed(0)
    model = nn.Linear(x.shape[1], CLASSES)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, config.drop_every, config.drop_factor)
    loader = DataLoader(TensorDataset(x, y), batch_size=config.batch, shuffle=True)
    for _ in range(config.epochs):
        for features, labels in loader:
            optimiser.zero_grad()
            F.cross_entropy(model(features), labels).backward()
            optimiser.step()
        schedule.step()
    return model


@torch.no_grad()
def percent(model: nn.Linear, x: Tensor, y: Tensor) -> float:
    counted = Tally(CLASSES)
    counted.add(model(x), y)
    return counted.metrics()["top1"]
