"""The two tasks that learn from labels: their losses against loops, and that they learn."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator, Tensor

from bownet.config import Net, Optimiser
from bownet.images import scenes
from bownet.images.augment import pad_crop_flip, to_float
from bownet.nets.build import build_backbone
from bownet.nets.heads import CosineHead
from bownet.tasks.cosine_classifier import cosine_classifier_task
from bownet.tasks.supervised import ClassifierTask, supervised_task
from bownet.training import InMemory, train

CLASSES = 4
MAKE = {"supervised": supervised_task, "cosine_classifier": cosine_classifier_task}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pictures(n: int, side: int = 16) -> tuple[Tensor, Tensor]:
    """Four categories of different shapes, and their numbers 0..3."""
    category = scenes.labels(n, (0, 5, 10, 16))
    return torch.from_numpy(scenes.draw_labelled(category, side, seed=0)), torch.arange(n, dtype=torch.int32) % 4


def new_task(name: str, pad: int = 2) -> ClassifierTask:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MAKE[name](build_backbone(Net(arch="wrn-10-1"), seed=0), CLASSES, pad)


def logits(task: ClassifierTask, f: list[float]) -> list[float]:
    if isinstance(task.head, CosineHead):
        weights, scale = task.head.weight_KC.tolist(), task.head.scale.item()
        return [scale * sum(map(float.__mul__, f, w)) / math.hypot(*w) / math.hypot(*f) for w in weights]
    weights, biases = task.head.weight.tolist(), task.head.bias.tolist()  # type: ignore[operator]
    return [sum(map(float.__mul__, f, w)) + b for w, b in zip(weights, biases, strict=True)]


@pytest.mark.parametrize("name", MAKE)
def test_loss_equals_a_loop(name: str) -> None:
    task = new_task(name).eval()
    images, labels = pictures(6)
    loss, metrics = task(images, labels, seeded(3))
    x = pad_crop_flip(to_float(images), 2, seeded(3))
    total, right = 0.0, 0
    for f, label in zip(task.backbone(x, ("pool",))["pool"].tolist(), labels.tolist(), strict=True):
        z = logits(task, f)
        total += math.log(sum(map(math.exp, z))) - z[label]
        right += z.index(max(z)) == label
    assert loss.item() == pytest.approx(total / 6, rel=1e-5)
    assert metrics["accuracy"].item() == pytest.approx(right / 6)


def test_cosine_logits_by_hand() -> None:
    head = CosineHead(2, 2)
    with torch.no_grad():
        head.weight_KC.copy_(torch.tensor([[3.0, 4.0], [0.0, -2.0]]))
    z = head(torch.tensor([[50.0, 0.0], [0.0, 0.1]]))
    torch.testing.assert_close(z, torch.tensor([[6.0, 0.0], [8.0, -10.0]]))  # the scale begins at 10


@pytest.mark.parametrize("name", MAKE)
def test_it_learns(name: str) -> None:
    images, labels = pictures(96, side=24)
    config = Optimiser(epochs=12, iterations_per_epoch=None, batch=16, lr=0.05, schedule="cosine")
    task = new_task(name)
    history = train(task, InMemory(images.numpy()), labels.numpy(), config, seed=0)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in task.parameters())
    assert history[-1]["loss"] < 0.6 * history[0]["loss"]
    assert history[-1]["accuracy"] > 0.7
