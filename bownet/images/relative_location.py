"""Patches for relative location (RelLoc, Doersch et al.; the base teacher of section 4.1's MiniImageNet comparison).

Images go in; a jittered patch of each cell of a 3x3 grid comes out, the centre first, with the positions of the
others: 0 1 2 above from left to right, 3 left, 4 right, 5 6 7 below. The network must not find the answer in colour
fringes or in edges that run on, so most images turn grey, patches leave gaps, and each is standardised on its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bownet.images.augment import flip_some
from bownet.images.perturb import luminance

POSITIONS = 8
_CELL_OF_POSITION = (0, 1, 2, 3, 5, 6, 7, 8)  # row by row, without the centre
_CENTRE = 4


class LocationPatches(NamedTuple):
    """Patch 0 is the centre; patch j + 1 lies at position_NJ[:, j] around it."""

    patches_NMCPP: Tensor
    position_NJ: Tensor


def grid_side(side: int) -> int:
    """The side to which images are scaled: 96 for the 84 of MiniImageNet, as its protocol says; else their own."""
    return 96 if 64 < side <= 128 else side


def patch_side(side: int) -> int:
    """Three quarters of a cell: 24 for 96, 56 for 224, 8 for 32. The rest is jitter, which makes the gaps."""
    return round(0.75 * (side // 3) + 1e-6)


@torch.no_grad()
def location_patches(
    x_NCHW: Tensor,
    generator: Generator,
    side: int | None = None,
    neighbours: int = POSITIONS,
    grey_probability: float = 0.66,
    standardise: bool = True,
) -> LocationPatches:
    """Square images in [0, 1] -> patches [N, 1 + neighbours, C, P, P] and positions [N, neighbours].

    Each image is flipped and made grey by a draw of its own, and each patch lies anywhere in its cell. With fewer
    than eight neighbours, each image has a choice of its own. `side`: scale images to it first, see `grid_side`.
    """
    n, c, h, w = x_NCHW.shape
    side = side or grid_side(h)
    cell, patch = side // 3, patch_side(side)
    if h != w or patch < 2:
        raise ValueError(f"images of {h}x{w}, side={side}: patches need square images of at least 9 pixels a side")
    if not 1 <= neighbours <= POSITIONS:
        raise ValueError(f"neighbours={neighbours}: a patch has 8 around it, use 1..8")

    r_NK = torch.rand(n, 1 + POSITIONS + 2 * (1 + neighbours), generator=generator, device=generator.device)
    grey_N, order_N8, jitter_N2M = (
        r_NK[:, 0],
        r_NK[:, 1 : 1 + POSITIONS],
        r_NK[:, 1 + POSITIONS :].unflatten(1, (2, -1)),
    )
    position_NJ = order_N8.argsort(1)[:, :neighbours].sort(1).values
    x = flip_some(x_NCHW, generator)
    rows = (grey_N < grey_probability).nonzero()[:, 0].to(x.device)
    with torch.autocast(x.device.type, enabled=False):  # eight bits of mantissa are too few for pixels
        x.index_copy_(0, rows, luminance(x.index_select(0, rows)).expand(-1, c, -1, -1))
    if side != h:
        x = F.interpolate(x, (side, side), mode="bilinear", antialias=True, align_corners=False)

    cell_NM = F.pad(torch.tensor(_CELL_OF_POSITION, device=generator.device)[position_NJ], (1, 0), value=_CENTRE)
    jitter_N2M = (jitter_N2M * (cell - patch + 1)).long()
    margin = (side - 3 * cell) // 2
    top_NM = margin + cell_NM // 3 * cell + jitter_N2M[:, 0]
    left_NM = margin + cell_NM % 3 * cell + jitter_N2M[:, 1]
    windows_NYXCPP = x.unfold(2, patch, 1).unfold(3, patch, 1).permute(0, 2, 3, 1, 4, 5)  # a view
    image_N1 = torch.arange(n, device=x.device)[:, None]
    patches = windows_NYXCPP[image_N1, top_NM.to(x.device), left_NM.to(x.device)]
    if standardise:
        std, mean = torch.std_mean(patches, (3, 4), keepdim=True)
        patches = (patches - mean) / std.clamp(min=1e-3)  # a patch of one colour stays at zero
    return LocationPatches(patches, position_NJ.to(x.device))
