"""Feature maps to vectors: a tap's maps go in, flattened values come out, as many as a protocol wants."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

# Kernel and stride of the benchmark's average pooling for the taps of a ResNet at 224 pixels, by the side of the map.
_TABLE = {"conv2": (56, 16, 8), "conv3": (28, 13, 5), "conv4": (14, 8, 3), "conv5": (7, 6, 1)}
_VALUES = 9216


def pooled(maps_NCHW: Tensor, tap: str, pool: str) -> Tensor:
    """[N, D]; a tap that is pooled already stays as it is."""
    if maps_NCHW.ndim == 2:
        return maps_NCHW
    if pool == "global":
        return maps_NCHW.mean((2, 3))
    _, channels, height, width = maps_NCHW.shape
    if window := _window(height, width, tap):
        return F.avg_pool2d(maps_NCHW, *window).flatten(1)
    return F.adaptive_avg_pool2d(maps_NCHW, _grid(channels, height, width)).flatten(1)


def describe_pooling(channels: int, height: int, width: int, tap: str, pool: str) -> str:
    """For a protocol card; height and width 0 for a tap that is pooled already."""
    if not height or pool == "global":
        return f"globally pooled, {channels} values"
    if window := _window(height, width, tap):
        kernel, stride = window
        side = (height - kernel) // stride + 1
        return f"average pooling {kernel}/{stride} to {channels}x{side}x{side}, {channels * side * side} values"
    rows, columns = _grid(channels, height, width)
    return f"adaptive average pooling to {channels}x{rows}x{columns}, {channels * rows * columns} values"


def _window(height: int, width: int, tap: str) -> tuple[int, int] | None:
    side, kernel, stride = _TABLE.get(tap, (0, 0, 0))
    return (kernel, stride) if height == width == side else None


def _grid(channels: int, height: int, width: int) -> tuple[int, int]:
    """The largest square of places that keeps to about as many values."""
    side = max(1, math.isqrt(_VALUES // channels))
    return min(side, height), min(side, width)
