"""Scores of several networks against a number: few-shot accuracy over n, accuracy over rounds or over K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pipelines.drawing.style import CYCLE, DPI, MARKERS
from pipelines.over_runs import Point


def draw_lines(lines: Mapping[str, Sequence[Point]], title: str, x: str, y: str, log: bool = False) -> Figure:
    figure = Figure(figsize=(5.6, 3.8), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(lines.items()):
        at, score, half = zip(*sorted(points), strict=True)
        style: dict[str, Any] = {"color": CYCLE[i % len(CYCLE)], "marker": MARKERS[i % len(MARKERS)]}
        axes.errorbar(at, score, yerr=half, capsize=2.5, linewidth=1.5, markersize=5, label=name, **style)
    ticks = sorted({point[0] for points in lines.values() for point in points})
    if log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:g}" for tick in ticks])
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.25)
    if len(lines) > 1 or next(iter(lines), ""):
        axes.legend(frameon=False, fontsize=8)
    return figure
