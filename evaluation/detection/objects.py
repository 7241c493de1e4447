"""The objects of an image: VOC's annotation goes in; boxes and class numbers come out, or a line that says what is bad.

VOC counts pixels from 1 and its last pixel belongs to the object. Here, as in detectron2, a box is a part of the plane:
(xmin - 1, ymin - 1, xmax, ymax), so that an object over the whole image is (0, 0, width, height).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

SLACK = 1  # pixels that a box may leave the image by: a few of VOC's do, from rounding; they are cut at the edge


@dataclass(frozen=True)
class Objects:
    """What is to be found in an image, in its own pixels."""

    boxes_M4: Tensor  # float32: x0, y0, x1, y1
    labels_M: Tensor  # int64, from 0, in the order of the categories
    difficult_M: Tensor  # bool: kept in training, ignored by the score

    def __len__(self) -> int:
        return len(self.labels_M)

    def resized(self, before: tuple[int, int], after: tuple[int, int]) -> Objects:
        """In an image of another (height, width)."""
        (h, w), (new_h, new_w) = before, after
        return replace(self, boxes_M4=self.boxes_M4 * torch.tensor([new_w / w, new_h / h] * 2))

    def flipped(self, width: int) -> Objects:
        """Left is right."""
        x0, y0, x1, y1 = self.boxes_M4.unbind(1)
        return replace(self, boxes_M4=torch.stack([width - x1, y0, width - x0, y1], 1))


def objects_of(annotation: Mapping[str, Any], size: tuple[int, int], categories: Sequence[str], image: str) -> Objects:
    """Of an annotation of our VOC reader; `size` is the image's (height, width), `image` its name in errors."""
    number = {name: i for i, name in enumerate(categories)}
    height, width = size
    boxes, labels, difficult = [], [], []
    for thing in annotation["boxes"]:
        name, (xmin, ymin, xmax, ymax) = thing["class"], thing["box"]
        if name not in number:
            raise ValueError(f"{image}: class {name!r} of an object is not among {', '.join(categories)}; mend its XML")
        if xmin > xmax or ymin > ymax:
            raise ValueError(
                f"{image}: the box {_shown(thing)} is empty; mend its XML or take the image out of the list"
            )
        if min(xmin, ymin) < 1 - SLACK or xmax > width + SLACK or ymax > height + SLACK:
            raise ValueError(
                f"{image}: the box {_shown(thing)} leaves the image of {width}x{height} pixels by more than {SLACK}; "
                "mend its XML or take the image out of the list"
            )
        box = [max(xmin - 1, 0), max(ymin - 1, 0), min(xmax, width), min(ymax, height)]
        if box[0] >= box[2] or box[1] >= box[3]:
            raise ValueError(
                f"{image}: the box {_shown(thing)} is outside of its {width}x{height} pixels; mend its XML"
            )
        boxes.append(box)
        labels.append(number[name])
        difficult.append(bool(thing["difficult"]))
    return Objects(
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        torch.tensor(labels, dtype=torch.int64),
        torch.tensor(difficult, dtype=torch.bool),
    )


def _shown(thing: Mapping[str, Any]) -> str:
    return f"{thing['class']} {thing['box']}"
