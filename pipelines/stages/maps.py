"""Feature maps of a shard, some images at a time: those of all together may need more memory than there is."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bownet.config import Net
from bownet.words.vocabulary import feature_maps
from pipelines.stages.features import on_meta
from pipelines.stages.pictures import names_of
from pipelines.stages.shards import Row, teacher_of
from pipelines.store import Artifact

AT_A_TIME = 250  # images
_ALIVE = 4  # of the largest maps, in a network without gradients and where its result is assigned to words


def maps_of(net: Artifact, images: Artifact, row: Row, pixels_NHWC: Tensor, tap: str) -> Iterator[tuple[int, Tensor]]:
    """The number of its first image within the shard, and the maps [n, C, h, w], of each part of a shard.

    Features that are not finite are an error that names their images, after the last part.
    """
    bad: list[int] = []
    for start in range(0, len(pixels_NHWC), AT_A_TIME):
        map_NCHW = feature_maps(teacher_of(net), pixels_NHWC[start : start + AT_A_TIME], tap)
        finite_N = torch.isfinite(map_NCHW).flatten(1).all(1)
        bad += (start + (~finite_N).nonzero()[:, 0]).tolist()
        if not bad:
            yield start, map_NCHW
    if bad:
        names = names_of(images, row)
        raise ValueError(
            f"{net.ref}: its features of {len(bad)} images of {row['name']} are not finite "
            f"({', '.join(names[i] for i in bad[:3])}); its training has diverged, use a smaller optimiser.lr"
        )


def map_side(net: Net, tap: str, size: int) -> int:
    """Positions along a side of a tap's map of images of `size` pixels; convolutions round up. 1 for a vector."""
    stride = on_meta(net).tap_strides[tap]
    return -(-size // stride) if stride else 1


def memory_of_maps(net: Net, size: int, shard_size: int) -> int:
    """Bytes that a pass over a shard takes besides what it keeps."""
    channels = on_meta(net).tap_channels
    largest = max(channels[tap] * map_side(net, tap, size) ** 2 for tap in channels)
    return shard_size * size**2 * 3 + min(shard_size, AT_A_TIME) * largest * 4 * _ALIVE
