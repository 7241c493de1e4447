"""What a student predicts of images: each one with the words that it gives the most weight to, as patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pipelines.drawing.style import DPI, GREEN, ORANGE, plain
from pipelines.drawing.words import block

Pixels = NDArray[np.uint8]
VIEWS = ("clean", "perturbed")


def draw_predictions(
    pixels: tuple[Pixels, Pixels],
    predicted_NK: tuple[NDArray[np.float32], NDArray[np.float32]],
    truth_NK: NDArray[np.float32],
    patches: Pixels,
    told: Sequence[dict[str, Any]],
    top: int,
    title: str,
) -> Figure:
    """Clean and perturbed images in turns; `truth_NK` is the bag of the clean one, which both should give."""
    slot = {word["word"]: i for i, word in enumerate(told)}
    images, top = len(truth_NK), min(top, truth_NK.shape[1])
    figure = Figure(figsize=(1.5 * (top + 1), 1.75 * 2 * images + 0.8), dpi=DPI, layout="constrained")
    said = "predicted share / true share in the clean image; solid green: in the image, dotted orange: not"
    figure.suptitle(f"{plain(title)}\n{said}", fontsize=9)
    grid = figure.subplots(2 * images, top + 1, squeeze=False)
    for i in range(images):
        for view, (shown, said_NK) in enumerate(zip(pixels, predicted_NK, strict=True)):
            line = grid[2 * i + view]
            line[0].imshow(shown[i])
            line[0].set(xticks=[], yticks=[])
            line[0].set_title(VIEWS[view], fontsize=8)
            for axes, word in zip(line[1:], most_likely(said_NK[i], top), strict=True):
                _word(axes, patches[slot[word]] if word in slot else None, truth_NK[i, word] > 0)
                shares = f"{said_NK[i, word]:.1%} / {truth_NK[i, word]:.1%}"
                axes.set_title(f"word {word}\n{shares}", fontsize=6.5)
    return figure


def most_likely(said_K: NDArray[np.float32], top: int) -> list[int]:
    """The words with the largest shares, the largest first; of equal ones the first."""
    return [int(word) for word in np.argsort(-said_K, kind="stable")[:top]]


def _word(axes: Axes, patches: Pixels | None, right: bool) -> None:
    axes.set(xticks=[], yticks=[])
    if patches is None:
        axes.text(0.5, 0.5, "no patches", ha="center", va="center", fontsize=7, transform=axes.transAxes)
    else:
        axes.imshow(block(patches), interpolation="nearest")
    for side in axes.spines.values():
        side.set(color=GREEN if right else ORANGE, linewidth=2 if right else 1)
        side.set_linestyle("-" if right else ":")
