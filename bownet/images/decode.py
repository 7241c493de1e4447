"""An encoded image goes in; upright 8-bit RGB pixels come out, or one line that says why there are none.

Files from the wild are of all kinds, so that every kind is decided here, once:
grey is repeated over the channels, CMYK is converted, 16-bit values keep their upper 8 bits, what is transparent
shows white (as on paper and in a browser), EXIF's orientation is applied, of an animation the first frame is taken.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from bownet.images.plain_png import open_plain_png

T = TypeVar("T")
Pixels = NDArray[np.uint8]  # [H, W, 3], read-only

MAX_PIXELS = 178_956_970  # Pillow's own limit, twice its default for a warning: 0.5 GB of RGB
# Only formats that Pillow decodes in itself: some others start programs (EPS) or read other files.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)
_HOLDS_ORIENTATION = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif")
_is_quiet: ContextVar[bool] = ContextVar("pillow_is_quiet", default=False)
_WITH_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")

logging.getLogger("PIL").addHandler(logging.NullHandler())  # a bad TIFF is a BadImage, not a line on the terminal


@dataclass(frozen=True)
class BadImage:
    """Why there are no pixels; in the place of an image, so that one bad file does not end the reading."""

    reason: str


def decode(content: bytes) -> Pixels | BadImage:
    """The pixels of an encoded image, [H, W, 3]."""
    return _read(content, _pixels)


def decode_shrunk(content: bytes, smallest_side: int) -> tuple[Pixels, tuple[int, int]] | BadImage:
    """The pixels and the full upright (height, width). A JPEG may come at 1/2, 1/4 or 1/8 of its size, which is faster
    to decode, as long as its shorter side keeps `smallest_side` pixels."""

    def shrunk(image: Image.Image) -> tuple[Pixels, tuple[int, int]]:
        full = _upright_size(image)
        image.draft(image.mode, (smallest_side, smallest_side))  # does nothing unless it is a JPEG
        return _pixels(image), full

    return _read(content, shrunk)


def image_size(content: bytes) -> tuple[int, int] | BadImage:
    """The upright (height, width), from the head of the file alone: the rest may still be broken."""
    return _read(content, _upright_size, _head)


@contextmanager
def quietly() -> Iterator[None]:
    """Silence Pillow's warnings for many images at once: for each alone it would cost a quarter of its time."""
    token = _is_quiet.set(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            yield
    finally:
        _is_quiet.reset(token)


def _head(content: bytes) -> Image.Image:
    return Image.open(BytesIO(content), formats=FORMATS)


def _opened(content: bytes) -> Image.Image:
    return open_plain_png(content, MAX_PIXELS) or _head(content)


def _read(
    content: bytes, take: Callable[[Image.Image], T], opened: Callable[[bytes], Image.Image] = _opened
) -> T | BadImage:
    """What `take` gets out of the opened image. Pillow's warnings are silent: they are handled, or a BadImage."""
    with nullcontext() if _is_quiet.get() else quietly():
        try:
            image = opened(content)
            if not 0 < image.width * image.height <= MAX_PIXELS:
                return BadImage(f"{image.width}x{image.height} pixels; 1 to {MAX_PIXELS} are decoded")
            return take(image)
        except MemoryError:
            raise
        except Exception as error:  # Pillow raises whatever the bytes lead it to: SyntaxError, struct.error, IndexError
            return _bad(content, error)


def _pixels(image: Image.Image) -> Pixels:
    image.load()  # first, because some formats know their orientation and transparency only then
    turn = _TURNS.get(_orientation(image))
    rgb = _rgb(image) if turn is None else _rgb(image).transpose(turn)
    return np.frombuffer(rgb.tobytes(), np.uint8).reshape(rgb.height, rgb.width, 3)  # faster than np.asarray


def _rgb(image: Image.Image) -> Image.Image:
    mode = image.mode
    if mode in _WITH_ALPHA or "transparency" in image.info:
        paper = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(paper, image.convert("RGBA")).convert("RGB")
    if mode == "RGB":
        return image
    if mode == "F":
        raise ValueError("floating-point pixels, whose range is unknown; save it with 8 bits")
    if mode.startswith("I"):  # 16 bits, or 32 that hold 16; Pillow would clip them to 255
        values = np.clip(np.asarray(image), 0, 65535) >> 8
        image = Image.fromarray(values.astype(np.uint8))
    return image.convert("RGB")


def _orientation(image: Image.Image) -> int:
    if not any(key in image.info for key in _HOLDS_ORIENTATION):
        return 1  # a TIFF too: Pillow turns it when it is loaded
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata does not make an image unreadable
        return 1


def _upright_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (width, height) if _orientation(image) in _SIDEWAYS else (height, width)


def _bad(content: bytes, error: Exception) -> BadImage:
    if not content:
        return BadImage("empty file")
    if isinstance(error, UnidentifiedImageError):
        return BadImage(f"not an image of a known format ({', '.join(FORMATS)}); it begins {content[:8]!r}")
    lines = str(error).splitlines() or [type(error).__name__]
    return BadImage(lines[0][:150])
