"""Images with their visual words laid over them: each colour is a word, the commonest of an image are numbered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from bownet.nets.receptive_field import ReceptiveField
from pipelines.drawing.style import DPI, plain

NUMBERED = 3
LETTERS = 22  # of a file's name; more would run into the next one
SHADES = "viridis"  # differ in lightness as well; lines part words whose shades are alike

Segment = list[tuple[float, float]]


def draw_word_maps(
    images_NHWC: NDArray[np.uint8],
    words_NHW: NDArray[np.uint16],
    field: ReceptiveField,
    names: Sequence[str],
    title: str,
) -> Figure:
    """`field` is what a position sees: a word is painted around its middle, as its patches are cut."""
    across = len(images_NHWC)
    figure = Figure(figsize=(1.75 * across, 4.2), dpi=DPI, layout="constrained")
    figure.suptitle(plain(title))
    above, below = figure.subplots(2, across, squeeze=False)
    for axes, image, name in zip(above, images_NHWC, names, strict=True):
        axes.imshow(image)
        axes.set_title(plain(short(name)), fontsize=7)
        axes.axis("off")
    for axes, image, words in zip(below, images_NHWC, words_NHW, strict=True):
        _overlay(axes, image, words, field)
    return figure


def short(name: str) -> str:
    """The end of a file's path, which tells most."""
    last = name.rpartition("/")[2]
    return last if len(last) <= LETTERS else "…" + last[1 - LETTERS :]


def _overlay(axes: Axes, image: NDArray[np.uint8], words: NDArray[np.uint16], field: ReceptiveField) -> None:
    ys, xs = (edges(count, field, size) - 0.5 for count, size in zip(words.shape, image.shape[:2], strict=True))
    axes.imshow(image.mean(2), cmap="gray", vmin=0, vmax=255)
    painted = colormaps[SHADES](words * 0.618034 % 1)  # a word has its colour in every image
    painted[..., 3] = 0.5
    axes.pcolormesh(xs, ys, painted)
    lines = [[(xs[int(x)], ys[int(y)]) for x, y in segment] for segment in borders(words)]
    axes.add_collection(LineCollection(lines, colors="white", linewidths=0.6))
    here, counts = np.unique(words, return_counts=True)
    for word in here[np.argsort(-counts, kind="stable")][:NUMBERED]:
        y, x = np.argwhere(words == word)[0]
        at = (xs[x : x + 2].mean(), ys[y : y + 2].mean())
        outlined = [withStroke(linewidth=1.6, foreground="black")]
        axes.text(
            *at, str(word), fontsize=6, ha="center", va="center", color="white", weight="bold", path_effects=outlined
        )
    axes.axis("off")


def edges(count: int, field: ReceptiveField, size: int) -> NDArray[np.float64]:
    """Where the cells of a row of positions begin and end, in pixels of the image from its corner.

    A cell is a stride wide around the middle of what its position sees; the first and the last reach the border.
    """
    between = field.offset + field.stride * (np.arange(1, count) - 0.5)
    return np.concatenate([[0.0], np.clip(between, 0, size), [float(size)]])


def borders(words_HW: NDArray[np.uint16]) -> list[Segment]:
    """Where a word ends and another begins, in positions: x from 0 to the width, y from 0 to the height."""
    right = np.argwhere(words_HW[:, 1:] != words_HW[:, :-1])
    below = np.argwhere(words_HW[1:] != words_HW[:-1])
    upright = [[(x + 1.0, float(y)), (x + 1.0, y + 1.0)] for y, x in right.tolist()]
    return upright + [[(float(x), y + 1.0), (x + 1.0, y + 1.0)] for y, x in below.tolist()]
