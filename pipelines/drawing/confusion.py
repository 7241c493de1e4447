"""Which classes a classifier takes for which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from pipelines.drawing.style import DPI, plain

NAMED = 40  # classes, of more the axes would be black


def draw_confusion(confusion_LL: ArrayLike, names: Sequence[str], title: str) -> Figure:
    """Rows are what an image is, columns what it is taken for, in percent of the row."""
    counts = np.asarray(confusion_LL, float)
    share = 100 * counts / np.maximum(1, counts.sum(1, keepdims=True))
    side = min(9.0, 3.2 + 0.22 * len(names))
    figure = Figure(figsize=(side + 1.0, side), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(share, cmap="cividis", vmin=0, vmax=max(50.0, float(share.max())))
    axes.set(xlabel="taken for", ylabel="is", title=plain(title))
    if len(names) <= NAMED:
        shown = [plain(name) for name in names]
        axes.set_xticks(range(len(names)), shown, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), shown, fontsize=7)
    if len(names) <= 12:
        for i in range(len(names)):
            for j in range(len(names)):
                colour = "black" if share[i, j] > 0.6 * picture.get_clim()[1] else "white"
                axes.text(j, i, f"{share[i, j]:.0f}", ha="center", va="center", fontsize=6.5, color=colour)
    figure.colorbar(picture, ax=axes, label="% of the class", shrink=0.8)
    return figure
