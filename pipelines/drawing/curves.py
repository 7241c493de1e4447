"""Training over its epochs: the loss with the entropy of its targets as a floor, the rate, and what the proxy says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipelines.drawing.style import BLUE, DPI, GREEN, GREY, ORANGE, plain

FLOOR = "floor"  # the mean entropy of an epoch's targets, which no loss can be below


def draw_curves(history: Sequence[Mapping[str, Any]], title: str) -> Figure:
    epochs = [record["epoch"] for record in history]
    extra = [name for name in ("accuracy", "knn") if any(name in record for record in history)]
    figure = Figure(figsize=(3.7 * (2 + bool(extra)), 3.2), dpi=DPI, layout="constrained")
    figure.suptitle(plain(title))
    loss, rate, *more = figure.subplots(1, 2 + bool(extra))
    loss.plot(epochs, [record["loss"] for record in history], color=BLUE, marker=".", label="loss")
    if all(FLOOR in record for record in history):
        floor = [record[FLOOR] for record in history]
        loss.plot(epochs, floor, color=GREY, linestyle="--", label="entropy of the targets")
        loss.legend(frameon=False, fontsize=8)
    loss.set(xlabel="epoch", ylabel="nats", title="loss")
    rate.plot(epochs, [record["lr"] for record in history], color=ORANGE, marker=".")
    rate.set(xlabel="epoch", title="learning rate")
    for axes in more:
        for name, colour in zip(extra, (GREEN, BLUE), strict=False):
            points = [(record["epoch"], record[name]) for record in history if name in record]
            axes.plot(*zip(*points, strict=True), color=colour, marker=".", label=name)
        axes.set(xlabel="epoch", title="on training images")
        axes.legend(frameon=False, fontsize=8)
    for axes in (loss, rate, *more):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(epochs) == 1:
            axes.set_xlim(epochs[0] - 1, epochs[0] + 1)
    return figure
