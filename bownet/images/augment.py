"""Label-free image operations on whole batches: pad-crop-flip and the four rotations. Floats in [0, 1], NCHW."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


def to_float(images_NHWC: Tensor) -> Tensor:
    """uint8 NHWC as it is stored -> float NCHW in [0, 1], channels last in memory."""
    return images_NHWC.permute(0, 3, 1, 2).float().div_(255)


def flip_some(x_NCHW: Tensor, generator: Generator) -> Tensor:
    """Mirror each image with probability one half."""
    flip_N = torch.rand(len(x_NCHW), generator=generator, device=generator.device) < 0.5
    rows = flip_N.nonzero()[:, 0].to(x_NCHW.device)
    return x_NCHW.index_copy(0, rows, x_NCHW.index_select(0, rows).flip(3))


def pad_crop_flip(x_NCHW: Tensor, pad: int, generator: Generator) -> Tensor:
    """Zero-pad by `pad` on all sides, cut a window of the old size at a random place per image, flip half of them."""
    n, _, h, w = x_NCHW.shape
    offset_2N = torch.randint(0, 2 * pad + 1, (2, n), generator=generator, device=generator.device).to(x_NCHW.device)
    windows_NYXCHW = F.pad(x_NCHW, (pad,) * 4).unfold(2, h, 1).unfold(3, w, 1).permute(0, 2, 3, 1, 4, 5)  # a view
    return flip_some(windows_NYXCHW[torch.arange(n, device=x_NCHW.device), *offset_2N], generator)


def four_rotations(x_NCHW: Tensor) -> Tensor:
    """All four rotations of every image, by transposing and flipping only: [4N, C, H, W], rotation-major."""
    t = x_NCHW.transpose(2, 3)
    return torch.cat([x_NCHW, t.flip(2), x_NCHW.flip((2, 3)), t.flip(3)])  # 0, 90, 180, 270 degrees counter-clockwise
