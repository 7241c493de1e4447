"""CutMix: the share of the target is the share of the pixels, and the draws have the distribution of the original."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from bownet.images.cutmix import Mix, draw_mix


@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 12)])
def test_lambda_is_the_share_of_kept_pixels(height: int, width: int) -> None:
    generator = Generator().manual_seed(0)
    x = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 3, height, width)
    y_NK = torch.eye(6)
    clipped = 0
    for _ in range(60):
        mix = draw_mix(6, height, width, generator)
        assert sorted(mix.partner_N.tolist()) == list(range(6))
        images, targets = mix.images(x), mix.targets(y_NK)
        for i, j in enumerate(mix.partner_N.tolist()):
            kept = (images[i] == i).float().mean().item()
            assert (images[i] == j).float().mean().item() == pytest.approx(1 - kept if i != j else 1)
            expected = [0.0] * 6
            expected[i] += mix.lam
            expected[j] += 1 - mix.lam
            assert targets[i].tolist() == pytest.approx(expected)
            assert i == j or kept == pytest.approx(mix.lam)
        torch.testing.assert_close(targets.sum(1), torch.ones(6))
        clipped += mix.y0 == 0 or mix.x0 == 0 or mix.y1 == height or mix.x1 == width
    assert clipped > 10


def test_patch_by_hand() -> None:
    mix = Mix(torch.tensor([1, 0]), y0=1, y1=3, x0=0, x1=3, lam=1 - 6 / 12)
    x = torch.stack([torch.zeros(1, 3, 4), torch.arange(12.0).view(1, 3, 4)])
    before = x.clone()
    expected = torch.tensor([[0.0, 0, 0, 0], [4, 5, 6, 0], [8, 9, 10, 0]])
    torch.testing.assert_close(mix.images(x)[0, 0], expected)
    assert torch.equal(x, before)
    targets = mix.targets(torch.tensor([[0.8, 0.2, 0.0], [0.0, 0.5, 0.5]]))
    torch.testing.assert_close(targets, torch.tensor([[0.4, 0.35, 0.25], [0.4, 0.35, 0.25]]))


def test_statistics_of_the_box() -> None:
    """λ ~ Beta(1, 1) is uniform, so the side s = √(1-λ) has density 2s; the centre is uniform.

    A side of length s with a uniform centre keeps s - s²/4 after clipping, so the mean area is
    ∫ (s - s²/4)² 2s ds = 2 (1/4 - 1/10 + 1/96) = 0.3208. It is cut off at the left with probability E[s]/2 = 1/3.
    Boxes that are whole have weight (1-s)², and then the mean area is ∫ s²(1-s)² 2s ds / ∫ (1-s)² 2s ds = 1/5.
    """
    generator = Generator().manual_seed(1)
    side, n = 2000, 6000
    mixes = [draw_mix(2, side, side, generator) for _ in range(n)]
    area = torch.tensor([1 - m.lam for m in mixes])
    assert area.mean().item() == pytest.approx(0.3208, abs=0.012)  # four standard deviations of about 0.23 / √6000
    for edge in ([m.x0 == 0 for m in mixes], [m.y1 == side for m in mixes]):
        assert sum(edge) / n == pytest.approx(1 / 3, abs=0.025)
    whole = torch.tensor([m.x0 > 0 and m.y0 > 0 and m.x1 < side and m.y1 < side for m in mixes])
    assert whole.float().mean().item() == pytest.approx(1 / 6, abs=0.02)  # ∫ (1-s)² 2s ds = 1/6
    assert area[whole].mean().item() == pytest.approx(1 / 5, abs=0.02)
    middle = torch.tensor([[m.x0 + m.x1, m.y0 + m.y1] for m in mixes]) / (2 * side)
    assert middle.mean(0).tolist() == pytest.approx([0.5, 0.5], abs=0.012)
    assert torch.corrcoef(middle.T)[0, 1].abs().item() < 0.06


def test_one_generator_seed_one_mix() -> None:
    a, b, c = (draw_mix(16, 32, 32, Generator().manual_seed(s)) for s in (3, 3, 4))
    assert torch.equal(a.partner_N, b.partner_N)
    assert (a.y0, a.y1, a.x0, a.x1, a.lam) == (b.y0, b.y1, b.x0, b.x1, b.lam)
    assert (a.y0, a.y1, a.x0, a.x1) != (c.y0, c.y1, c.x0, c.x1)
