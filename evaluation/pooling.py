"""What feature maps are pooled to before a classifier: maps of a tap go in, a vector for each image comes out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

TARGET = 9216  # values of the benchmark's table, about


def pooled(maps_NCHW: Tensor, tap: str, pool: str) -> Tensor:
    """[N, D]: one value a channel (`global`), about 9000 values (`9k`) or 4x4 places; vectors stay as they are."""
    if maps_NCHW.dim() == 2:
        return maps_NCHW
    if pool == "global":
        return maps_NCHW.mean((2, 3))
    side = 4 if pool == "4x4" else max(1, round((TARGET / maps_NCHW.shape[1]) ** 0.5))
    return F.adaptive_avg_pool2d(maps_NCHW, min(side, *maps_NCHW.shape[2:])).flatten(1)


def describe_pooling(channels: int, height: int, width: int, tap: str, pool: str) -> str:
    return f"{tap}: {channels}x{height}x{width} pooled ({pool})"
