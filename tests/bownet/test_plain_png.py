"""The short way through a plain PNG: the pixels that Pillow sees, and nothing to do with any file that is odd."""

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from bownet.images.plain_png import open_plain_png

LIMIT = 10**6


def noise(height: int, width: int, channels: int = 3) -> Image.Image:
    values = np.random.default_rng(height * width).integers(256, size=(height, width, channels), dtype=np.uint8)
    return Image.fromarray(values)


def saved(image: Image.Image, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def written(rows: bytes, size: tuple[int, int], kind: tuple[int, ...] = (8, 2, 0, 0, 0), pieces: int = 1) -> bytes:
    """A PNG of these filtered rows, whose compressed bytes lie in so many chunks."""
    packed = np.array_split(np.frombuffer(zlib.compress(rows), np.uint8), pieces)
    head = chunk(b"IHDR", struct.pack(">II", *size) + bytes(kind))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(b"IDAT", p.tobytes()) for p in packed) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(1, 1), (32, 32), (3, 200), (300, 200)])
@pytest.mark.parametrize("level", [0, 1, 9])
def test_it_sees_what_pillow_sees(size: tuple[int, int], level: int) -> None:
    image = noise(*size)
    made = open_plain_png(saved(image, compress_level=level), LIMIT)
    assert made is not None
    np.testing.assert_array_equal(np.asarray(made), np.asarray(image))


@pytest.mark.parametrize("pieces", [1, 3])
def test_every_filter_of_a_row_is_undone(pieces: int) -> None:
    """None, left, above, their mean, and Paeth's choice, worked out by hand for rows of two pixels."""
    rows = bytes([0, 10, 20, 30, 40, 50, 60])  # as it is
    rows += bytes([1, 1, 2, 3, 1, 1, 1])  # plus the left pixel: 1 2 3, 2 3 4
    rows += bytes([2, 1, 1, 1, 255, 1, 1])  # plus the one above: 2 3 4, 1 (256 is 0, 257 is 1) 4 5
    rows += bytes([3, 1, 1, 1, 1, 1, 1])  # plus half of left and above: 2 2 3, 2 4 5
    rows += bytes([4, 1, 1, 1, 1, 1, 1])  # Paeth: above first, 3 3 4; then the nearest to left + above - corner
    expected = [
        [10, 20, 30, 40, 50, 60],
        [1, 2, 3, 2, 3, 4],
        [2, 3, 4, 1, 4, 5],
        [2, 2, 3, 2, 4, 5],
        [3, 3, 4, 4, 5, 6],
    ]
    made = open_plain_png(written(rows, (2, 5), pieces=pieces), LIMIT)
    assert made is not None
    assert np.asarray(made).reshape(5, 6).tolist() == expected


def test_no_damage_gets_through() -> None:
    content = saved(noise(5, 7))
    assert open_plain_png(content, LIMIT) is not None
    for at in range(len(content)):
        damaged = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        assert open_plain_png(damaged, LIMIT) is None, at
        assert open_plain_png(content[:at], LIMIT) is None, at
    assert open_plain_png(content + b"more", LIMIT) is None


def text() -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_text("comment", "anything")
    return info


ODD = {
    "too large for the limit": saved(noise(1001, 1000)),
    "alpha": saved(noise(8, 8, 4)),
    "palette": saved(noise(8, 8).quantize(16)),
    "grey": saved(noise(8, 8).convert("L")),
    "transparent colour": saved(noise(8, 8), transparency=(0, 0, 0)),
    "text": saved(noise(8, 8), pnginfo=text()),
    "16 bits": written(bytes(7), (1, 1), (16, 2, 0, 0, 0)),
    "interlaced": written(bytes(4), (1, 1), (8, 2, 0, 0, 1)),
    "no pixels": written(b"", (0, 0)),
    "pixels end too early": written(bytes(20), (2, 5)),
    "an unknown filter": written(bytes([9, 1, 2, 3]), (1, 1)),
    "not a PNG": b"GIF89a",
    "nothing": b"",
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_ones_are_left_to_others(kind: str) -> None:
    assert open_plain_png(ODD[kind], LIMIT) is None
