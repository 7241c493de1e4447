"""Encoded photos to square pixels on CPU workers: the view that targets come from, and random crops to learn from.

Bytes go in, uint8 [size, size, 3] or a BadImage comes out. Large JPEGs are decoded at a fraction of their size where
the view does not need more (ImageNet: target views are the centre 224 of 256, appendix C).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bownet.images.decode import BadImage, decode, decode_shrunk
from bownet.images.perturb import CROP_DRAWS, crop_windows

Pixels = NDArray[np.uint8]
RESIZE = 8 / 7  # short side before the centre crop, as 256 for 224
LONGEST = 32  # times the short side


def fit_square(pixels_HWC: Pixels, size: int) -> Pixels:
    """Scale the short side to `size`, antialiased, and cut the centre; images of that size are left alone."""
    if pixels_HWC.shape[:2] == (size, size):
        return pixels_HWC
    return _centre(pixels_HWC, size, size)


def stored_view(content: bytes, size: int) -> Pixels | BadImage:
    """What teachers and evaluators see of a file whose pixels are stored: all of its short side."""
    pixels = decode(content)
    return pixels if isinstance(pixels, BadImage) else fit_square(pixels, size)


def clean_file_view(content: bytes, size: int) -> Pixels | BadImage:
    """What teachers and evaluators see of a file that is stored as it is."""
    return centre_view(content, size, round(size * RESIZE))


def centre_view(content: bytes, size: int, resize: int) -> Pixels | BadImage:
    """The middle `size` pixels after the short side was scaled to `resize`."""
    if size > resize:
        raise ValueError(f"size={size}, resize={resize}: the view is cut out of the scaled image, use size <= resize")
    decoded = decode_shrunk(content, resize)
    return decoded if isinstance(decoded, BadImage) else _centre(decoded[0], size, resize)


def squashed_view(content: bytes, size: int, resize: int) -> Pixels | BadImage:
    """The whole image, its short side scaled to `resize` and that squashed to a square: VOC07 SVMs see it so."""
    decoded = decode_shrunk(content, resize)
    if isinstance(decoded, BadImage):
        return decoded
    pixels = decoded[0]
    height, width = pixels.shape[:2]
    short = min(height, width)
    if max(height, width) <= LONGEST * short:  # else a thread of an image, whose first step would only cost memory
        between = (resize * height // short, resize * width // short)
        if between != (height, width):
            pixels = _scaled(pixels, 0, 0, height, width, between)
    height, width = pixels.shape[:2]
    return pixels if (height, width) == (size, size) else _scaled(pixels, 0, 0, height, width, (size, size))


def shifted_view(content: bytes, size: int, resize: int, rng: np.random.Generator) -> Pixels | BadImage:
    """Any `size` pixels, all places alike, after the short side was scaled to `resize`."""
    decoded = decode_shrunk(content, resize)
    return decoded if isinstance(decoded, BadImage) else _cut(decoded[0], size, resize, rng.random(), rng.random())


def random_view(
    content: bytes, size: int, area: tuple[float, float], aspect: tuple[float, float], rng: np.random.Generator
) -> Pixels | BadImage:
    """A random resized crop, drawn as torchvision's RandomResizedCrop draws it."""
    # No window is narrower than this share of the short side, so that none is enlarged for being decoded small.
    least = math.sqrt(area[0] * min(aspect[0], 1 / aspect[1]))
    decoded = decode_shrunk(content, math.ceil(size / least))
    if isinstance(decoded, BadImage):
        return decoded
    pixels, (height, width) = decoded
    window_4 = crop_windows(rng.random((CROP_DRAWS, 1)), height, width, area, aspect)[:, 0]
    scale_4 = np.array([pixels.shape[0] / height, pixels.shape[1] / width] * 2)
    top, left, h, w = (window_4 * scale_4).tolist()
    return _scaled(pixels, top, left, h, w, (size, size))


def _centre(pixels_HWC: Pixels, size: int, resize: int) -> Pixels:
    return _cut(pixels_HWC, size, resize, None, None)


def _cut(pixels_HWC: Pixels, size: int, resize: int, down: float | None, right: float | None) -> Pixels:
    """Scale the short side to `resize` and cut a square; its place in [0, 1) of the way, None for the centre."""
    height, width = pixels_HWC.shape[:2]
    short = min(height, width)
    if max(height, width) > LONGEST * short:  # a thread of an image: its ends would only cost memory
        y, x = (max(0, length - LONGEST * short) // 2 for length in (height, width))
        pixels_HWC = pixels_HWC[y : y + LONGEST * short, x : x + LONGEST * short]
        height, width = pixels_HWC.shape[:2]
    # torchvision's Resize cuts the long side to whole pixels; its CenterCrop rounds halves to even.
    h, w = (resize * height // short, resize * width // short)
    if (h, w) != (height, width):
        pixels_HWC = _scaled(pixels_HWC, 0, 0, height, width, (h, w))
    top = round((h - size) / 2) if down is None else int(down * (h - size + 1))
    left = round((w - size) / 2) if right is None else int(right * (w - size + 1))
    return np.ascontiguousarray(pixels_HWC[top : top + size, left : left + size])


def _scaled(pixels_HWC: Pixels, top: float, left: float, h: float, w: float, size: tuple[int, int]) -> Pixels:
    """A window, in fractions of pixels where need be, scaled to `size`; nothing outside of it leaks in."""
    y0, x0 = math.floor(top), math.floor(left)
    part = pixels_HWC[y0 : math.ceil(top + h), x0 : math.ceil(left + w)]
    box = (left - x0, top - y0, min(left - x0 + w, part.shape[1]), min(top - y0 + h, part.shape[0]))
    image = Image.fromarray(np.ascontiguousarray(part))
    return np.array(image.resize((size[1], size[0]), Image.Resampling.BILINEAR, box))
