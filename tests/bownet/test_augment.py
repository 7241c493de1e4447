"""Pad-crop-flip and rotations: every output is where it should come from."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Generator

from bownet.images.augment import flip_some, four_rotations, pad_crop_flip, to_float


def test_to_float_moves_channels_and_scales() -> None:
    images = torch.zeros(2, 4, 5, 3, dtype=torch.uint8)
    images[1, 2, 3] = torch.tensor([255, 51, 0], dtype=torch.uint8)
    x = to_float(images)
    assert x.shape == (2, 3, 4, 5)
    assert x.dtype == torch.float32
    assert x[1, :, 2, 3].tolist() == pytest.approx([1.0, 0.2, 0.0])
    assert x.sum().item() == pytest.approx(1.2)
    assert images[1, 2, 3, 0] == 255
    assert x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 8)])
def test_pad_crop_flip_cuts_windows_of_the_padded_image(height: int, width: int) -> None:
    pad, n = 2, 400
    one = torch.arange(1.0, 3 * height * width + 1).view(1, 3, height, width)
    out = pad_crop_flip(one.repeat(n, 1, 1, 1), pad, Generator().manual_seed(0))
    assert out.shape == (n, 3, height, width)
    padded = F.pad(one[0], (pad,) * 4)
    windows = {}
    for top in range(2 * pad + 1):
        for left in range(2 * pad + 1):
            window = padded[:, top : top + height, left : left + width]
            windows[tuple(window.flatten().tolist())] = (top, left, False)
            windows[tuple(window.flip(2).flatten().tolist())] = (top, left, True)
    assert len(windows) == 50
    seen = [windows[tuple(image.flatten().tolist())] for image in out]  # KeyError: not a window
    assert len(set(seen)) == 50  # all offsets, both ways, each expected 8 times
    assert 160 < sum(flipped for *_, flipped in seen) < 240


def test_pad_crop_flip_keeps_images_apart_and_follows_the_seed() -> None:
    x = torch.arange(1.0, 9.0).view(8, 1, 1, 1).expand(8, 3, 4, 4)
    out = pad_crop_flip(x, 1, Generator().manual_seed(1))
    assert torch.equal(out.amax((1, 2, 3)), torch.arange(1.0, 9.0))
    assert torch.equal(out, pad_crop_flip(x, 1, Generator().manual_seed(1)))
    assert not torch.equal(out, pad_crop_flip(x, 1, Generator().manual_seed(2)))


def test_flip_some_mirrors_left_and_right_only() -> None:
    x = torch.rand(100, 3, 4, 5, generator=Generator().manual_seed(0))
    out = flip_some(x, Generator().manual_seed(1))
    plain = torch.tensor([torch.equal(a, b) for a, b in zip(out, x, strict=True)])
    mirrored = torch.tensor([torch.equal(a, b.flip(2)) for a, b in zip(out, x, strict=True)])
    assert (plain ^ mirrored).all()
    assert 30 <= int(plain.sum()) <= 70


def test_four_rotations_equal_rot90() -> None:
    x = torch.rand(3, 2, 6, 6, generator=Generator().manual_seed(0))
    out = four_rotations(x)
    assert out.shape == (12, 2, 6, 6)
    for turns in range(4):
        assert torch.equal(out[3 * turns : 3 * turns + 3], torch.rot90(x, turns, (2, 3)))
