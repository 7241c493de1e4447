"""Scores against a number, such as few-shot accuracy over n or accuracy over K, a line for each network; or by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pipelines.drawing.style import BLUE, CYCLE, DPI, MARKERS, plain
from pipelines.over_runs import Point


def draw_lines(lines: Mapping[str, Sequence[Point]], title: str, x: str, y: str, log: bool = False) -> Figure:
    figure = Figure(figsize=(5.6, 3.8), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    handles = []
    for i, points in enumerate(lines.values()):
        at, score, half = zip(*sorted(points), strict=True)
        style: dict[str, Any] = {"color": CYCLE[i % len(CYCLE)], "marker": MARKERS[i % len(MARKERS)]}
        handles.append(axes.errorbar(at, score, yerr=half, capsize=2.5, linewidth=1.5, markersize=5, **style))
    ticks = sorted({point[0] for points in lines.values() for point in points})
    if log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:g}" for tick in ticks])
    axes.set(xlabel=plain(x), ylabel=y, title=plain(title))
    axes.grid(alpha=0.25)
    if len(lines) > 1 or next(iter(lines), ""):
        axes.legend(handles, [plain(name) for name in lines], frameon=False, fontsize=8)
    return figure


def draw_named(scores: Sequence[tuple[str, float, float]], title: str, x: str) -> Figure:
    """A row for each name with its score and half of its interval, the first at the top."""
    lines = sum(name.count("\n") + 1 for name, _, _ in scores)
    figure = Figure(figsize=(7, 1.6 + 0.28 * lines), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    names, score, half = zip(*scores, strict=True)
    axes.errorbar(score, range(len(names)), xerr=half, fmt=MARKERS[0], color=BLUE, capsize=2.5, markersize=5)
    axes.set_yticks(range(len(names)), [plain(name) for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.5 / len(names))
    axes.set(xlabel=plain(x), title=plain(title))
    axes.grid(alpha=0.25)
    return figure
