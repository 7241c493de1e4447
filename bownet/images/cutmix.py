"""CutMix for soft targets: a patch of each image comes from another one, and so does that share of its target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class Mix:
    """One box and one permutation for a batch. `lam` is the share of the image that was kept, after clipping."""

    partner_N: Tensor
    y0: int
    y1: int
    x0: int
    x1: int
    lam: float

    def images(self, x_NCHW: Tensor) -> Tensor:
        mixed = x_NCHW.clone(memory_format=torch.preserve_format)
        box = (..., slice(self.y0, self.y1), slice(self.x0, self.x1))
        mixed[box] = x_NCHW[box][self.partner_N.to(x_NCHW.device)]
        return mixed

    def targets(self, y_NK: Tensor) -> Tensor:
        """λ y(x_A) + (1-λ) y(x_B), section 2.3."""
        return self.lam * y_NK + (1 - self.lam) * y_NK[self.partner_N.to(y_NK.device)]


def draw_mix(n: int, height: int, width: int, generator: Generator) -> Mix:
    """λ ~ Beta(1, 1), a box of area 1-λ around a uniform centre, clipped to the image; λ is then what is left."""
    keep, cy, cx = torch.rand(3, generator=generator, device=generator.device).tolist()
    side = (1 - keep) ** 0.5
    bh, bw = int(height * side), int(width * side)
    y, x = int(cy * height), int(cx * width)
    y0, y1 = max(0, y - bh // 2), min(height, y + bh // 2)
    x0, x1 = max(0, x - bw // 2), min(width, x + bw // 2)
    lam = 1 - (y1 - y0) * (x1 - x0) / (height * width)
    return Mix(torch.randperm(n, generator=generator, device=generator.device), y0, y1, x0, x1, lam)
