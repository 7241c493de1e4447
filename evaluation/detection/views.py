"""What a detector sees: an image's pixels and a size go in, resized pixels come out, with boxes to match in training.

As detectron2 does it: the short side gets the size that was asked for unless the long one would then exceed its limit,
8-bit pixels are resized by Pillow's bilinear filter, and half of the training images are mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from evaluation.detection.objects import Objects

Pixels = NDArray[np.uint8]  # [H, W, 3]


@dataclass(frozen=True)
class View:
    """An image as the network gets it."""

    pixels_CHW: Tensor  # uint8
    objects: Objects | None  # in these pixels
    size: tuple[int, int]  # (height, width) of the image itself


def fitted(size: tuple[int, int], short: int, longest: int) -> tuple[int, int]:
    """The (height, width) that an image is resized to."""
    scale = short / min(size)
    scale *= min(1.0, longest / (scale * max(size)))
    height, width = size
    return max(1, int(height * scale + 0.5)), max(1, int(width * scale + 0.5))


def plain_view(pixels: Pixels, short: int, longest: int) -> View:
    size = pixels.shape[0], pixels.shape[1]
    return View(_resized(pixels, fitted(size, short, longest)), None, size)


def random_view(
    pixels: Pixels, objects: Objects, shorts: Sequence[int], longest: int, rng: np.random.Generator
) -> View:
    """With a short side drawn from `shorts`, mirrored or not."""
    size = pixels.shape[0], pixels.shape[1]
    height, width = fitted(size, int(rng.choice(shorts)), longest)
    x_CHW, objects = _resized(pixels, (height, width)), objects.resized(size, (height, width))
    if rng.random() < 0.5:
        x_CHW, objects = x_CHW.flip(2), objects.flipped(width)
    return View(x_CHW, objects, size)


def _resized(pixels: Pixels, size: tuple[int, int]) -> Tensor:
    height, width = size
    if pixels.shape[:2] != size:
        pixels = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
