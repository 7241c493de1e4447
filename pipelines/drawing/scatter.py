"""A map of features in two dimensions, coloured by class: t-SNE, as in the paper, or UMAP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pipelines.drawing.style import CYCLE, DPI, MARKERS, plain

MOST = 1000  # images of a map; more are neither legible nor quick
SHOWN = 12  # classes with a colour and a name; the others are grey


def embed(features_ND: NDArray[np.float32], method: str, seed: int) -> NDArray[np.float32]:
    """[N, 2]. Features are standardised, and reduced to 50 principal components first, as is usual."""
    from sklearn.decomposition import PCA

    x = (features_ND - features_ND.mean(0)) / (features_ND.std(0) + 1e-6)
    if min(x.shape) > 50:
        x = PCA(50, random_state=seed).fit_transform(x)
    if method == "umap":
        try:
            from umap import UMAP
        except ImportError:
            raise ValueError("kind=umap: needs another package; pip install umap-learn, or use tsne") from None
        return np.asarray(UMAP(random_state=seed, n_jobs=1).fit_transform(x), np.float32)
    from sklearn.manifold import TSNE

    perplexity = float(min(30, max(2, (len(x) - 1) / 3)))
    made = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(x)
    return np.asarray(made, np.float32)


def draw_scatter(
    points_N2: NDArray[np.float32], labels_N: NDArray[np.int64], names: Sequence[str], title: str
) -> Figure:
    figure = Figure(figsize=(7.2, 5.6), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_title(plain(title))
    counts = np.bincount(labels_N, minlength=len(names))
    shown = np.argsort(-counts, kind="stable")[:SHOWN]
    shown = np.sort(shown[counts[shown] > 0])
    rest = ~np.isin(labels_N, shown)
    drawn: list[tuple[Any, str]] = []  # with their names: labels that begin with an underscore would be left out
    if rest.any():
        others = axes.scatter(points_N2[rest, 0], points_N2[rest, 1], s=6, color="#D0D0D0", linewidths=0)
        drawn.append((others, f"{len(names) - len(shown)} others"))
    for i, label in enumerate(shown):
        here = labels_N == label
        style: dict[str, Any] = {"marker": MARKERS[i // len(CYCLE) % len(MARKERS)], "color": CYCLE[i % len(CYCLE)]}
        dots = axes.scatter(points_N2[here, 0], points_N2[here, 1], s=11, alpha=0.75, linewidths=0, **style)
        drawn.append((dots, plain(names[label])))
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(False)
    at: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    axes.legend(*zip(*drawn, strict=True), **at, frameon=False, fontsize=8, markerscale=1.8)
    return figure
