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
    return torch.where(flip_N.to(x_NCHW.device)[:, None, None, None], x_NCHW.flip(3), x_NCHW)


def pad_crop_flip(x_NCHW: Tensor, pad: int, generator: Generator) -> Tensor:
    """Zero-pad by `pad` on all sides, cut a window of the old size at a random place per image, flip half of them."""
    n, _, h, w = x_NCHW.shape
    offset_2N = torch.randint(0, 2 * pad + 1, (2, n), generator=generator, device=generator.device).to(x_NCHW.device)
    padded = F.pad(x_NCHW, (pad, pad, pad, pad))
    rows_NH = offset_2N[0, :, None] + torch.arange(h, device=x_NCHW.device)
    cols_NW = offset_2N[1, :, None] + torch.arange(w, device=x_NCHW.device)
    image_N = torch.arange(n, device=x_NCHW.device)
    window = padded.permute(0, 2, 3, 1)[image_N[:, None, None], rows_NH[:, :, None], cols_NW[:, None, :]]
    return flip_some(window.permute(0, 3, 1, 2), generator)


def four_rotations(x_NCHW: Tensor) -> Tensor:
    """All four rotations of every image, by transposing and flipping only: [4N, C, H, W], rotation-major."""
    t = x_NCHW.transpose(2, 3)
    return torch.cat([x_NCHW, t.flip(2), x_NCHW.flip((2, 3)), t.flip(3)])  # 0, 90, 180, 270 degrees counter-clockwise
