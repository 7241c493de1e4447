"""Small encoded images for the tests of readers."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from bownet.images.decode import decode
from bownet.images.sources.listing import Listing, Picture

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def encoded(value: int = 0, size: tuple[int, int] = (6, 4), kind: str = "PNG") -> bytes:
    """An image of width, height `size` in one grey."""
    file = BytesIO()
    Image.new("RGB", size, (value, value, value)).save(file, kind)
    return file.getvalue()


def value_of(picture: Picture) -> int:
    """The grey of such an image, as it was read."""
    pixels = decode(picture.content) if isinstance(picture.content, bytes) else picture.content
    assert isinstance(pixels, np.ndarray), picture
    return int(pixels[0, 0, 0])


def write(folder: Path, files: dict[str, int]) -> Path:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(value, kind="JPEG" if name.lower().endswith(("jpg", "jpeg")) else "PNG"))
    return folder


def read_all(listing: Listing) -> list[Picture]:
    return list(listing.part(np.arange(len(listing))).read())


def names_of(listing: Listing) -> list[str]:
    return [picture.name for picture in read_all(listing)]
