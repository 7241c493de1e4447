"""Losses of the tasks against plain loops, where gradients go, and that a teacher does not move."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.config import Net, Perturbation, Student
from bownet.images.augment import to_float
from bownet.images.cutmix import draw_mix
from bownet.images.perturb import perturb
from bownet.nets.build import build_backbone
from bownet.nets.taps import freeze
from bownet.tasks.bow import BowTask, soft_cross_entropy
from bownet.tasks.rotation import RotationTask

NET = Net(arch="wrn-10-1")
NOTHING = Perturbation(crop_area=(1, 1), crop_aspect=(1, 1), jitter_probability=0, grey_probability=0)
WORDS = 11


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def symmetric_images(n: int = 6, side: int = 16) -> Tensor:
    """uint8 NHWC; the same in a mirror, so that a flip is a no-op."""
    half = torch.randint(0, 256, (n, side, side // 2, 3), generator=seeded(1), dtype=torch.uint8)
    colour_N3 = torch.randint(0, 256, (n, 1, 1, 3), generator=seeded(2))
    half = (0.3 * half + 0.7 * colour_N3).to(torch.uint8)  # images that differ in more than their noise
    return torch.cat([half, half.flip(2)], 2)


def word_maps(n: int = 6, side: int = 5) -> Tensor:
    return torch.randint(0, WORDS, (n, 1, side, side), generator=seeded(2)).to(torch.uint16)


def bow_task(config: Student) -> BowTask:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BowTask(build_backbone(config.net, seed=0), WORDS, config)


def bag(words_HW: list[list[int]], drop_border: bool, binary: bool) -> list[float]:
    side = len(words_HW)
    inner = range(1, side - 1) if drop_border else range(side)
    count = [0.0] * WORDS
    for i in inner:
        for j in inner:
            count[words_HW[i][j]] = 1.0 if binary else count[words_HW[i][j]] + 1
    return [c / sum(count) for c in count]


def equation_6(task: BowTask, x_NCHW: Tensor, y_NK: list[list[float]]) -> float:
    """-Σ y log softmax(γ Φᵀ w̄), with loops and the math module."""
    feature = task.backbone(x_NCHW, ("pool",))["pool"].tolist()
    w, gamma = task.head.weight_KC.tolist(), task.head.gamma.item()
    total = 0.0
    for f, y in zip(feature, y_NK, strict=True):
        lengths = [math.sqrt(sum(v * v for v in row)) for row in w]
        z = [gamma * sum(a * b for a, b in zip(f, row, strict=True)) / s for row, s in zip(w, lengths, strict=True)]
        log_sum = max(z) + math.log(sum(math.exp(v - max(z)) for v in z))
        total -= sum(p * (v - log_sum) for p, v in zip(y, z, strict=True))
    return total / len(feature)


@pytest.mark.parametrize("bow", ["count", "binary"])
@pytest.mark.parametrize("drop_border", [True, False])
def test_bow_loss_equals_the_loop_of_equation_6(bow: str, drop_border: bool) -> None:
    config = Student(arch=NET.arch, bow=bow, drop_border=drop_border, cutmix=False, perturbation=NOTHING)
    task = bow_task(config).eval()
    images, words = symmetric_images(), word_maps()
    y_NK = [bag(maps[0].tolist(), drop_border, bow == "binary") for maps in words]
    loss, metrics = task(images, words, seeded())
    assert loss.item() == pytest.approx(equation_6(task, to_float(images), y_NK), rel=1e-5)
    floor = sum(-p * math.log(p) for y in y_NK for p in y if p) / len(y_NK)
    assert metrics["floor"].item() == pytest.approx(floor, rel=1e-5)
    assert loss.item() > floor
    assert metrics["gamma"].item() == 3.0


def test_bow_loss_of_mixed_images_has_mixed_targets() -> None:
    task = bow_task(Student(arch=NET.arch, cutmix=True)).eval()
    images, words = symmetric_images(), word_maps()
    loss, _ = task(images, words, seeded(0))
    draws = seeded(0)  # the same draws, taken apart
    x = perturb(to_float(images), Perturbation(), draws)
    mix = draw_mix(6, 16, 16, draws)
    assert 0.05 < mix.lam < 0.95
    clean = [bag(maps[0].tolist(), True, False) for maps in words]
    pairs = zip(clean, (clean[j] for j in mix.partner_N.tolist()), strict=True)
    mixed = [[mix.lam * p + (1 - mix.lam) * q for p, q in zip(a, b, strict=True)] for a, b in pairs]
    assert loss.item() == pytest.approx(equation_6(task, mix.images(x), mixed), rel=1e-5)
    for wrong in (equation_6(task, mix.images(x), clean), equation_6(task, x, mixed)):
        assert loss.item() != pytest.approx(wrong, rel=1e-3)


def test_bow_loss_reaches_backbone_weights_and_scale() -> None:
    task = bow_task(Student(arch=NET.arch)).train()
    loss, _ = task(symmetric_images(), word_maps(), seeded())
    loss.backward()
    without = [name for name, p in task.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []
    assert {"head.weight_KC", "head.gamma"} <= {name for name, _ in task.named_parameters()}


def test_bow_task_learns_its_targets() -> None:
    task = bow_task(Student(arch=NET.arch, cutmix=False, perturbation=NOTHING)).train()
    optimiser = torch.optim.SGD(task.parameters(), lr=0.05, momentum=0.9)
    images, words = symmetric_images(), word_maps()
    excess = []
    for _ in range(40):
        loss, metrics = task(images, words, seeded())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        excess.append((loss - metrics["floor"]).item())
    assert excess[-1] < 0.1 * excess[0]
    assert min(excess) >= -1e-5  # cross-entropy cannot fall below the entropy of its targets


def test_soft_cross_entropy() -> None:
    logits = torch.randn(7, 5, generator=seeded())
    label = torch.arange(7) % 5
    torch.testing.assert_close(soft_cross_entropy(logits, F.one_hot(label, 5).float()), F.cross_entropy(logits, label))
    y_NK = torch.rand(7, 5, generator=seeded(1))
    y_NK /= y_NK.sum(1, keepdim=True)
    torch.testing.assert_close(soft_cross_entropy(logits, y_NK), F.cross_entropy(logits, y_NK))
    by_hand = soft_cross_entropy(torch.tensor([[0.0, math.log(3)]]), torch.tensor([[0.5, 0.5]]))
    assert by_hand.item() == pytest.approx(-(0.5 * math.log(1 / 4) + 0.5 * math.log(3 / 4)))


class Pixels(nn.Module):
    """Gives the image itself as the feature map."""

    def forward(self, x_NCHW: Tensor, taps: tuple[str, ...]) -> dict[str, Tensor]:
        return {taps[0]: x_NCHW}


class WhereIsTheSky(nn.Module):
    """Knows the answer: an image with a white top row was turned so that the row is now at the top, left, ..."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        sides = (x_NCHW[:, :, 0], x_NCHW[:, :, :, 0], x_NCHW[:, :, -1], x_NCHW[:, :, :, -1])
        return 100 * torch.stack([side.mean((1, 2)) for side in sides], 1)


def test_rotation_labels_follow_the_order_of_the_rotations() -> None:
    task = RotationTask(build_backbone(NET, seed=0), head_layers=1, pad=0)
    task.backbone, task.head = Pixels(), WhereIsTheSky()  # type: ignore[assignment]
    images = torch.zeros(5, 8, 8, 3, dtype=torch.uint8)
    images[:, 0] = 255  # a flip leaves the top row at the top
    loss, metrics = task(images, None, seeded())
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert metrics["accuracy"].item() == 1
    upside_down = images.flip(1)
    loss, metrics = task(upside_down, None, seeded())
    assert metrics["accuracy"].item() == 0
    assert loss.item() > 50


def test_rotation_task_trains_backbone_and_head() -> None:
    task = RotationTask(build_backbone(NET, seed=0), head_layers=2, pad=2).train()
    loss, metrics = task(symmetric_images(), None, seeded())
    loss.backward()
    assert [name for name, p in task.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []
    assert 0 <= metrics["accuracy"].item() <= 1
    assert loss.item() == pytest.approx(math.log(4), abs=1.0)  # it knows nothing yet


def snapshot(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def test_frozen_teacher_does_not_move_by_one_bit() -> None:
    teacher = build_backbone(NET, seed=5)
    x = to_float(symmetric_images())
    before = snapshot(teacher)
    teacher.train()(x, ("pool",))  # a net in training mode moves even without a step: its running statistics
    assert any(not torch.equal(before[name], value) for name, value in teacher.state_dict().items())

    assert freeze(teacher) is teacher
    assert not teacher.training
    assert not any(p.requires_grad for p in teacher.parameters())
    before = snapshot(teacher)
    task = bow_task(Student(arch=NET.arch)).train()
    student = snapshot(task)
    parameters = [*task.parameters(), *teacher.parameters()]  # even if an optimiser were handed the teacher
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)
    features = []
    for step in range(3):
        features.append(teacher(x, ("block3",))["block3"])
        assert not features[-1].requires_grad
        loss, _ = task(symmetric_images(), word_maps(), seeded(step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())
    assert torch.equal(features[0], features[2])
    assert any(not torch.equal(student[name], value) for name, value in task.state_dict().items())
