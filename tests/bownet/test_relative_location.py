"""RelLoc patches of an image whose pixels name their own place, so that every offset can be read off."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor

from bownet.images.relative_location import cut_patches, grid_side, location_patches, patch_side

OFFSETS = [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]  # down, right; by position


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def coordinates(n: int, side: int) -> Tensor:
    """Channel 0 holds the row of each pixel, 1 its column, 2 the number of the image."""
    row, col = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.stack([torch.stack([row, col, torch.full_like(row, i)]) for i in range(n)]).float()


@pytest.mark.parametrize(("side", "grid", "patch"), [(32, 32, 8), (84, 96, 24), (96, 96, 24), (224, 224, 56)])
def test_sizes(side: int, grid: int, patch: int) -> None:
    assert (grid_side(side), patch_side(grid)) == (grid, patch)
    x = torch.rand(2, 3, side, side, generator=seeded())
    assert location_patches(x, seeded()).shape == (2, 9, 3, patch, patch)


@pytest.mark.parametrize(("side", "cell", "patch", "margin"), [(96, 32, 24, 0), (32, 10, 8, 1)])
def test_patches_lie_in_the_cells_that_their_positions_name(side: int, cell: int, patch: int, margin: int) -> None:
    n = 200
    patches = cut_patches(coordinates(n, side), torch.rand(n, 2, 9, generator=seeded(1)))
    inside = torch.arange(patch)
    jitters = set()
    for i in range(n):
        for m in range(9):
            down, right = (0, 0) if m == 0 else OFFSETS[m - 1]
            rows, cols, number = patches[i, m]
            assert (number == i).all()
            top, left = int(rows[0, 0]), int(cols[0, 0])
            assert torch.equal(rows, (top + inside)[:, None].expand(patch, patch).float())
            assert torch.equal(cols, (left + inside)[None].expand(patch, patch).float())
            jitter = top - margin - (1 + down) * cell, left - margin - (1 + right) * cell
            assert all(0 <= j <= cell - patch for j in jitter)
            jitters.add((m, *jitter))
    assert len(jitters) > 0.8 * 9 * (cell - patch + 1) ** 2  # every patch is anywhere in its cell


def test_images_are_flipped_before_they_are_cut() -> None:
    patches = location_patches(coordinates(200, 32) / 32, seeded(1))
    flipped_NM = patches[:, :, 1, 0, 0] > patches[:, :, 1, 0, -1]
    assert torch.equal(flipped_NM.all(1), flipped_NM.any(1))
    assert 70 < flipped_NM[:, 0].sum() < 130


def test_grey_is_drawn_per_image() -> None:
    x = torch.rand(1000, 3, 9, 9, generator=seeded(3))
    before = x.clone()
    patches = location_patches(x, seeded(4))
    grey_NM = (patches.amax(2) - patches.amin(2)).amax((2, 3)) == 0
    assert torch.equal(grey_NM.all(1), grey_NM.any(1))
    assert grey_NM[:, 0].float().mean().item() == pytest.approx(0.66, abs=0.06)
    assert torch.equal(x, before)


def test_every_patch_is_standardised_on_its_own() -> None:
    x = torch.rand(5, 3, 96, 96, generator=seeded(5)) * torch.linspace(0.1, 1, 96)
    x[0] = 0.5
    patches = location_patches(x, seeded(6))
    torch.testing.assert_close(patches.mean((3, 4)), torch.zeros(5, 9, 3), atol=1e-4, rtol=0)
    torch.testing.assert_close(patches[1:].std((3, 4)), torch.ones(4, 9, 3), atol=1e-4, rtol=0)
    torch.testing.assert_close(patches[0], torch.zeros(9, 3, 24, 24), atol=1e-3, rtol=0)


def test_the_generator_decides_alone() -> None:
    x = torch.rand(4, 3, 32, 32, generator=seeded(7))
    state = torch.get_rng_state()
    a, b, c = (location_patches(x, seeded(s)) for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(state, torch.get_rng_state())


def test_errors_name_the_value() -> None:
    with pytest.raises(ValueError, match="20x30"):
        location_patches(torch.zeros(1, 3, 20, 30), seeded())
    with pytest.raises(ValueError, match="5x5"):
        location_patches(torch.zeros(1, 3, 5, 5), seeded())


def test_autocast_does_not_round_pixels() -> None:
    x = torch.rand(8, 3, 24, 24, generator=seeded(2))
    with torch.autocast("cpu", torch.bfloat16):
        inside = location_patches(x, seeded(1))
    outside = location_patches(x, seeded(1))
    assert torch.equal(inside, outside)
