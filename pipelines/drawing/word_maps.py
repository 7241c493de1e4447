"""Images with their visual words laid over them: each colour is a word, the commonest of an image are numbered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pipelines.drawing.style import DPI

NUMBERED = 3


def draw_word_maps(
    images_NHWC: NDArray[np.uint8], words_NHW: NDArray[np.uint16], names: Sequence[str], title: str
) -> Figure:
    across = len(images_NHWC)
    figure = Figure(figsize=(1.75 * across, 4.1), dpi=DPI, layout="constrained")
    figure.suptitle(title)
    plain, mapped = figure.subplots(2, across, squeeze=False)
    for axes, image, name in zip(plain, images_NHWC, names, strict=True):
        axes.imshow(image)
        axes.set_title(name, fontsize=7)
        axes.axis("off")
    for axes, image, words in zip(mapped, images_NHWC, words_NHW, strict=True):
        _overlay(axes, image, words)
    return figure


def _overlay(axes: Axes, image: NDArray[np.uint8], words: NDArray[np.uint16]) -> None:
    size, (h, w) = image.shape[0], words.shape
    axes.imshow(image.mean(2), cmap="gray", vmin=0, vmax=255)
    painted = colormaps["turbo"](words * 0.618034 % 1)  # a word has its colour in every image
    painted[..., 3] = 0.5
    axes.imshow(painted, extent=(-0.5, size - 0.5, size - 0.5, -0.5), interpolation="nearest")
    here, counts = np.unique(words, return_counts=True)
    for word in here[np.argsort(-counts, kind="stable")][:NUMBERED]:
        y, x = np.argwhere(words == word)[0]
        at = ((x + 0.5) * size / w - 0.5, (y + 0.5) * size / h - 0.5)
        axes.text(*at, str(word), fontsize=5.5, ha="center", va="center", color="white", weight="bold")
    axes.axis("off")
