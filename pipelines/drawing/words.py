"""Visual words as blocks of 4x4 patches, as in the paper: often used ones, the purest, any, rare ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pipelines.drawing.style import DPI, plain

ACROSS = 6  # words of a row
GRID = 4  # patches of a block's side


def words_figure(
    patches: NDArray[np.uint8], told: Sequence[dict[str, Any]], title: str, words: Sequence[int] = ()
) -> Figure:
    """`patches` are [words, 16, side, side, 3], and `told` says of each of these words what it is.

    Without `words`, numbers of some, it shows frequent ones, the purest, any and rare ones.
    """
    rows = in_rows(told, words) if words else chosen(told)
    across = max(3, *map(len, rows.values()))  # room for the title
    figure = Figure(figsize=(1.75 * across, 2.05 * len(rows) + 0.5), dpi=DPI, layout="constrained")
    figure.suptitle(plain(title))
    grid = figure.subplots(len(rows), across, squeeze=False)
    for line, (name, numbers) in zip(grid, rows.items(), strict=True):
        for axes in line:
            axes.axis("off")
        line[0].text(-0.09, 0.5, name, rotation=90, va="center", ha="right", transform=line[0].transAxes, fontsize=9)
        for axes, number in zip(line, numbers, strict=False):
            axes.imshow(block(patches[number]), interpolation="nearest")
            axes.set_title(plain(caption(told[number])), fontsize=6.5)
    return figure


def in_rows(told: Sequence[dict[str, Any]], words: Sequence[int]) -> dict[str, list[int]]:
    """These words in their order; the rows have no names."""
    at = {word["word"]: i for i, word in enumerate(told)}
    if missing := [word for word in words if word not in at]:
        raise ValueError(f"words={missing[0]}: has no patches; there are {len(at)} words from {min(at)} to {max(at)}")
    numbers = [at[word] for word in words]
    return {" " * i: numbers[i * ACROSS : (i + 1) * ACROSS] for i in range(-(-len(numbers) // ACROSS))}


def chosen(told: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Which words a picture shows, by their numbers in `told`: those that fill a block; without labels none is pure."""
    full = [i for i, word in enumerate(told) if len(word["images"]) >= GRID * GRID]
    rarest = f"rarest with\n{GRID * GRID} images" if len(full) < len(told) and full else "rarest"
    full = full or [*range(len(told))]
    by_share = sorted(full, key=lambda i: -told[i]["share"])
    rows = {"most frequent": by_share[:ACROSS]}
    if told and told[0]["purity"] is not None:
        rows["purest"] = sorted(full, key=lambda i: -told[i]["purity"])[:ACROSS]
    rows["any"] = np.random.default_rng(0).permutation(full)[:ACROSS].tolist()
    rows[rarest] = by_share[-ACROSS:][::-1]
    return rows


def block(patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """16 patches as a square, with white lines between them."""
    count, side = len(patches), patches.shape[1]
    gap = max(1, side // 12)
    out = np.full((GRID * (side + gap) - gap, GRID * (side + gap) - gap, 3), 255, np.uint8)
    for i in range(min(count, GRID * GRID)):
        top, left = i // GRID * (side + gap), i % GRID * (side + gap)
        out[top : top + side, left : left + side] = patches[i]
    return out


def named(category: str) -> str:
    return f"class {category}" if category.isdigit() else category


def caption(word: dict[str, Any]) -> str:
    """Such as "word 17, 1.2%, 64% in horse"."""
    said = f"word {word['word']}, {word['share']:.1%}"
    return said if word["purity"] is None else f"{said}\n{word['purity']:.0%} in {named(word['class'])}"
