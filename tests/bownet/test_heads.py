"""Ω of equation 5 against a loop, and the rotation head's shapes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.heads import BowHead, RotationHead


@pytest.fixture
def head() -> BowHead:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BowHead(channels=6, num_words=9)


def features(n: int, c: int) -> Tensor:
    return torch.randn(n, c, generator=Generator().manual_seed(1))


def test_logits_equal_the_loop_of_equation_5(head: BowHead) -> None:
    with torch.no_grad():
        head.gamma.fill_(1.7)
    f, w = features(4, 6).tolist(), head.weight_KC.tolist()
    logits = head(features(4, 6))
    assert logits.shape == (4, 9)
    for n in range(4):
        for k in range(9):
            length = math.sqrt(sum(v * v for v in w[k]))
            expected = 1.7 * sum(a * b / length for a, b in zip(f[n], w[k], strict=True))
            assert logits[n, k].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_logits_by_hand() -> None:
    head = BowHead(2, 2)
    with torch.no_grad():
        head.weight_KC.copy_(torch.tensor([[3.0, 4.0], [0.0, -2.0]]))
        head.gamma.fill_(2.0)
    torch.testing.assert_close(head(torch.tensor([[5.0, 10.0]])), torch.tensor([[22.0, -20.0]]))


def test_length_of_the_weights_does_not_matter_at_any_time(head: BowHead) -> None:
    before = head(features(4, 6))
    with torch.no_grad():
        head.weight_KC.mul_(torch.linspace(0.1, 30, 9)[:, None])  # normalised in each forward, not once at the start
    torch.testing.assert_close(head(features(4, 6)), before)


def test_gamma_and_the_feature_scale_the_logits(head: BowHead) -> None:
    f = features(4, 6)
    before = head(f)
    torch.testing.assert_close(head(5 * f), 5 * before)  # the feature is not normalised
    with torch.no_grad():
        head.gamma.mul_(4)
    torch.testing.assert_close(head(f), 4 * before)


def test_parameters_are_weights_and_one_scale(head: BowHead) -> None:
    assert {name: tuple(p.shape) for name, p in head.named_parameters()} == {"weight_KC": (9, 6), "gamma": ()}
    head(features(4, 6)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())
    # The gradient stands at right angles to each weight: its length is not learned.
    torch.testing.assert_close((head.weight_KC * head.weight_KC.grad).sum(1), torch.zeros(9), atol=1e-4, rtol=0)


def test_initial_weights_have_the_stated_spread() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = BowHead(128, 1000)
    assert head.weight_KC.std().item() == pytest.approx(math.sqrt(2 / 128), rel=0.02)
    assert head.gamma.item() == 3.0


@pytest.mark.parametrize(
    ("arch", "side", "layers"), [("wrn-10-2", 32, 4), ("wrn-10-1", 32, 1), ("resnet18", 64, 1), ("resnet50", 64, 1)]
)
def test_rotation_head(arch: str, side: int, layers: int) -> None:
    backbone = build_backbone(Net(arch=arch), seed=0).eval()
    head = RotationHead(backbone, layers).eval()
    tap = backbone.taps[-2]
    with torch.no_grad():
        map_NCHW = backbone(torch.rand(2, 3, side, side), (tap,))[tap]
        assert head(map_NCHW).shape == (2, 4)
        inner = head.block(map_NCHW)
    c, h = map_NCHW.shape[1:3]
    half = arch.startswith("wrn")  # one more block with stride 2; a ResNet gets one layer of the same size
    assert inner.shape == (2, c, h // 2, h // 2) if half else inner.shape == (2, c, h, h)
    assert inner.min() == 0
    convolutions = [m for m in head.block.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == (2 * layers + 1 if half else 3 * layers)  # WRN: and one shortcut
