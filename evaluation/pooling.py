"""Maps of features are averaged to what a classifier takes: one value a channel, about 9000 in all, or 4x4 places."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Pool = Literal["global", "9k", "4x4"]
ABOUT_9K = 9216  # values of the largest layers in the benchmark's table
# ResNet-50 at 224 pixels, conv2 to conv5: channels and side of the map, then kernel and stride of the average.
TABLE = {(256, 56): (16, 8), (512, 28): (13, 5), (1024, 14): (8, 3), (2048, 7): (6, 1)}


def pool_map(map_NCHW: Tensor, pool: Pool) -> Tensor:
    """[N, C, h, w] -> [N, C, s, s], or [N, C] for `global`. What is a vector already, such as pool5, stays."""
    if map_NCHW.dim() == 2:
        return map_NCHW
    if pool == "global":
        return map_NCHW.mean((2, 3))
    _, channels, height, width = map_NCHW.shape
    if pool == "9k" and height == width and (channels, height) in TABLE:
        return F.avg_pool2d(map_NCHW, *TABLE[channels, height])
    return F.adaptive_avg_pool2d(map_NCHW, places(channels, min(height, width), pool))


def places(channels: int, side: int, pool: Pool) -> int:
    """Positions along a side after pooling a map of `side` x `side`; 0 for a side of 0, which is a vector."""
    if side == 0 or pool == "global":
        return min(side, 1)
    if pool == "4x4":
        return min(4, side)
    if (channels, side) in TABLE:
        kernel, stride = TABLE[channels, side]
        return (side - kernel) // stride + 1
    most = int((ABOUT_9K / channels) ** 0.5)
    return max(1, min(most, side))


def values(channels: int, side: int, pool: Pool) -> int:
    """How many numbers of each image there are after pooling."""
    return channels * max(1, places(channels, side, pool)) ** 2


def in_words(channels: int, side: int, pool: Pool) -> str:
    """What was done, for a protocol card: `average pool 8/3 -> 1024x3x3`."""
    s = places(channels, side, pool)
    if side == 0:
        return f"the network's own global average, {channels} values"
    if pool == "global":
        return f"global average of {side}x{side} -> {channels}"
    if pool == "9k" and (channels, side) in TABLE:
        kernel, stride = TABLE[channels, side]
        return f"average pool {kernel}/{stride} -> {channels}x{s}x{s}"
    return f"adaptive average pool of {side}x{side} -> {channels}x{s}x{s}"
