"""Images and those that a network finds most alike, one network beside the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pipelines.drawing.style import DPI, GREEN, ORANGE, plain

Pixels = NDArray[np.uint8]


def nearest(features_ND: NDArray[np.float32], queries: Sequence[int], count: int) -> NDArray[np.int64]:
    """[queries, count] numbers of the images with the highest cosine, without the query itself."""
    unit = features_ND / np.maximum(1e-12, np.linalg.norm(features_ND, axis=1, keepdims=True))
    cosine = unit[[*queries]] @ unit.T
    cosine[np.arange(len(queries)), [*queries]] = -np.inf
    return np.argsort(-cosine, axis=1, kind="stable")[:, :count]


def draw_neighbours(
    images: Pixels,
    labels: NDArray[np.int64] | None,
    queries: Sequence[int],
    found: Mapping[str, NDArray[np.int64]],
    title: str,
) -> Figure:
    """`found` has for each network the numbers of what it finds; a frame tells whether the class is the query's."""
    count = next(iter(found.values())).shape[1]
    across = 1 + len(found) * count + (len(found) - 1)
    figure = Figure(figsize=(0.62 * across + 0.4, 0.66 * len(queries) + 0.9), dpi=DPI, layout="constrained")
    figure.suptitle(plain(title), fontsize=10)
    widths = [1.0] + [1.0] * count + ([0.3] + [1.0] * count) * (len(found) - 1)
    grid = figure.subplots(len(queries), across, squeeze=False, width_ratios=widths)
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set_visible(False)
    for line, query in zip(grid, queries, strict=True):
        line[0].imshow(images[query])
    grid[0][0].set_title("query", fontsize=8)
    for k, (name, numbers) in enumerate(found.items()):
        start = 1 + k * (count + 1)
        grid[0][start + count // 2].set_title(plain(name), fontsize=8)
        for line, query, row in zip(grid, queries, numbers, strict=True):
            for axes, number in zip(line[start : start + count], row, strict=True):
                axes.imshow(images[number])
                if labels is not None:
                    right = labels[number] == labels[query]
                    for side in axes.spines.values():
                        side.set(visible=True, color=GREEN if right else ORANGE, linewidth=2 if right else 1)
                        side.set_linestyle("-" if right else ":")
    return figure
