"""Patches for relative location (RelLoc, Doersch et al.; the base teacher of section 4.1's MiniImageNet comparison).

Images go in; a jittered patch of each cell of a 3x3 grid comes out, the centre first, then the others by position:
0 1 2 above from left to right, 3 left, 4 right, 5 6 7 below. The network must not find the answer in colour
fringes or in edges that run on, so most images turn grey, patches leave gaps, and each is standardised on its own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bownet.images.augment import flip_some
from bownet.images.perturb import luminance

POSITIONS = 8
GREY_PROBABILITY = 0.66
_CELLS = (4, 0, 1, 2, 3, 5, 6, 7, 8)  # row by row; the centre first, then the others by position


def grid_side(side: int) -> int:
    """The side to which images are scaled: 96 for the 84 of MiniImageNet, as its protocol says; else their own."""
    return 96 if 64 < side <= 128 else side


def patch_side(side: int) -> int:
    """Three quarters of a cell: 24 for 96, 56 for 224, 8 for 32. The rest is jitter, which makes the gaps."""
    return round(0.75 * (side // 3) + 1e-6)


@torch.no_grad()
def location_patches(x_NCHW: Tensor, generator: Generator) -> Tensor:
    """Square images in [0, 1] -> patches [N, 9, C, P, P]: the centre, and patch j + 1 at position j around it.

    Each image is flipped and made grey by a draw of its own, and each patch lies anywhere in its cell.
    """
    n, c, h, w = x_NCHW.shape
    side = grid_side(h)
    if h != w or patch_side(side) < 2:
        raise ValueError(f"images of {h}x{w}: patches need square images of at least 9 pixels a side")
    # Eight draws of each image are left over: without them a seed would no longer give what it has always given.
    r_NK = torch.rand(n, 1 + POSITIONS + 2 * len(_CELLS), generator=generator, device=generator.device)
    grey_N, jitter_N2M = r_NK[:, 0], r_NK[:, 1 + POSITIONS :].unflatten(1, (2, -1))
    x = flip_some(x_NCHW, generator)
    rows = (grey_N < GREY_PROBABILITY).nonzero()[:, 0].to(x.device)
    with torch.autocast(x.device.type, enabled=False):  # eight bits of mantissa are too few for pixels
        x.index_copy_(0, rows, luminance(x.index_select(0, rows)).expand(-1, c, -1, -1))
    if side != h:
        x = F.interpolate(x, (side, side), mode="bilinear", antialias=True, align_corners=False)
    patches = cut_patches(x, jitter_N2M)
    std, mean = torch.std_mean(patches, (3, 4), keepdim=True)
    return (patches - mean) / std.clamp(min=1e-3)  # a patch of one colour stays at zero


def cut_patches(x_NCHW: Tensor, jitter_N2M: Tensor) -> Tensor:
    """The patch of every cell [N, 9, C, P, P]; `jitter_N2M` in [0, 1) says how far down and right it lies there."""
    side = x_NCHW.shape[2]
    cell, patch = side // 3, patch_side(side)
    margin = (side - 3 * cell) // 2
    cell_M = torch.tensor(_CELLS, device=jitter_N2M.device)
    jitter_N2M = (jitter_N2M * (cell - patch + 1)).long()
    top_NM = margin + cell_M // 3 * cell + jitter_N2M[:, 0]
    left_NM = margin + cell_M % 3 * cell + jitter_N2M[:, 1]
    windows_NYXCPP = x_NCHW.unfold(2, patch, 1).unfold(3, patch, 1).permute(0, 2, 3, 1, 4, 5)  # a view
    image_N1 = torch.arange(len(x_NCHW), device=x_NCHW.device)[:, None]
    return windows_NYXCPP[image_N1, top_NM.to(x_NCHW.device), left_NM.to(x_NCHW.device)]
