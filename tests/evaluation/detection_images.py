"""Small images with boxes for the tests of detection, drawn or of VOC."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bownet.config import Data
from bownet.images.decode import decode
from bownet.images.sources import open_source
from bownet.images.sources.voc import CLASSES
from evaluation.detection.objects import Objects, objects_of
from evaluation.detection.views import Pixels, View

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@dataclass(frozen=True)
class InHand:
    """Pictures that are already read."""

    pictures: list[tuple[Pixels, Objects]]

    def __len__(self) -> int:
        return len(self.pictures)

    def read(self, row: int) -> tuple[Pixels, Objects]:
        return self.pictures[row]


def objects(boxes: list[list[float]], labels: list[int], difficult: list[bool] | None = None) -> Objects:
    return Objects(torch.tensor(boxes), torch.tensor(labels), torch.tensor(difficult or [False] * len(labels)))


def squares(count: int, seed: int = 0, side: int = 64) -> InHand:
    """A light square of one of two colours, which are the classes, on dark noise."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        pixels = rng.integers(0, 80, (side, side, 3), np.uint8)
        width, (x, y) = int(rng.integers(24, 40)), rng.integers(0, side - 40, 2)
        pixels[y : y + width, x : x + width, i % 2] = 250
        made.append((pixels, objects([[x, y, x + width, y + width]], [i % 2])))
    return InHand(made)


def view_of(pixels: Pixels, there: Objects | None = None) -> View:
    return View(torch.from_numpy(pixels.transpose(2, 0, 1).copy()), there, (pixels.shape[0], pixels.shape[1]))


def voc_images(count: int, most: int, smallest: float) -> InHand:
    """The first real VOC images, wider than high, with few objects, none smaller than this part of the short side."""
    source = open_source(Data(kind="voc", path=str(SHARED / "VOCdevkit"), voc_train="trainval07", storage="encoded"))
    made: list[tuple[Pixels, Objects]] = []
    for picture in source.splits["train"].part(np.arange(120)).read():
        assert isinstance(picture.content, bytes)
        assert picture.annotation is not None
        pixels = decode(picture.content)
        assert isinstance(pixels, np.ndarray)
        found = objects_of(picture.annotation, (pixels.shape[0], pixels.shape[1]), CLASSES, picture.name)
        sides = (found.boxes_M4[:, 2:] - found.boxes_M4[:, :2]).prod(1).sqrt() / min(pixels.shape[:2])
        is_wide = pixels.shape[1] > pixels.shape[0]  # no batch is mostly padding, which batch norm would see
        if is_wide and len(found) <= most and float(sides.min()) >= smallest:
            made.append((pixels, found))
    assert len(made) >= count
    return InHand(made[:count])
