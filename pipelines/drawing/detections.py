"""What was found in test images, with what is there: images, detections and ground truth go in, a page comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from evaluation.detection.detector import Found
from evaluation.detection.objects import Objects
from evaluation.detection.views import Pixels
from pipelines.drawing.style import DPI, ORANGE, SKY, YELLOW, plain

TRUTH, FOUND, DIFFICULT = SKY, ORANGE, YELLOW  # ground truth is dashed as well
SHOWN_FROM = 0.5  # score; what is below would hide the picture
COLUMNS = 4


@dataclass(frozen=True)
class Example:
    name: str
    pixels: Pixels
    objects: Objects
    found: Found


def draw_detections(examples: Sequence[Example], categories: Sequence[str], title: str) -> Figure:
    rows = math.ceil(len(examples) / COLUMNS)
    figure = Figure(figsize=(3.2 * COLUMNS, 2.9 * rows + 0.6), dpi=DPI, layout="constrained")
    figure.suptitle(f"{plain(title)}: found (solid, score of {SHOWN_FROM} or more), there (dashed), difficult (dotted)")
    all_axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes in all_axes:
        axes.axis("off")
    for axes, example in zip(all_axes, examples, strict=False):
        _draw(axes, example, categories)
    return figure


def _draw(axes: Axes, example: Example, categories: Sequence[str]) -> None:
    height, width = example.pixels.shape[:2]
    axes.imshow(example.pixels, extent=(0, width, height, 0), interpolation="bilinear")
    axes.set_title(plain(example.name.rpartition("/")[2]), fontsize=7)
    truth = example.objects
    for box, difficult in zip(truth.boxes_M4.tolist(), truth.difficult_M.tolist(), strict=True):
        _box(axes, box, DIFFICULT if difficult else TRUTH, ":" if difficult else "--")
    found = example.found
    for box, label, score in zip(
        found.boxes_D4.tolist(), found.labels_D.tolist(), found.scores_D.tolist(), strict=True
    ):
        if score >= SHOWN_FROM:
            _box(axes, box, FOUND, "-")
            said = {"facecolor": FOUND, "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
            text = f"{plain(categories[label])} {score:.2f}"
            axes.text(box[0], box[1], text, fontsize=6, color="white", va="bottom", bbox=said, clip_on=True)


def _box(axes: Axes, box: Sequence[float], colour: str, style: str) -> None:
    x0, y0, x1, y1 = box
    axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=colour, linestyle=style, linewidth=1.4))
