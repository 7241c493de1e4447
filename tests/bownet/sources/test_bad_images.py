"""Files from the wild, through a folder and the decoder: pixels that were computed by hand, or a reason."""

import json
import os
import pickle
import struct
import warnings
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from made_images import encoded, read_all
from PIL import Image

from bownet.config import Data
from bownet.images.decode import BadImage, decode, decode_shrunk
from bownet.images.sources import open_source

RED, GREEN, BLUE, WHITE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (100, 100, 100)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    """A PNG written by hand, for what Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def photo() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8))


def rotated() -> bytes:
    """Stored lying, 2 high and 4 wide with a red left half; orientation 6 turns it clockwise: the red goes up."""
    image = Image.new("RGB", (4, 2), BLUE)
    image.paste(RED, (0, 0, 2, 2))
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(image, "PNG", exif=exif)


def palette_with_transparency() -> bytes:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putdata([0, 1])
    return saved(image, "PNG", transparency=b"\xff\x00")


def animation() -> bytes:
    frames = [Image.new("RGB", (2, 2), colour) for colour in (RED, GREEN)]
    return saved(frames[0], "GIF", save_all=True, append_images=frames[1:])


def one_of_each(mode: str, *values: object) -> Image.Image:
    image = Image.new(mode, (len(values), 1))
    image.putdata(values)
    return image


# 16 bits, big-endian, after a filter byte: 0x0102 is 1, 0x8000 is 128, 0xffff is 255
GREY_16 = png(3, 1, 16, 0, b"\0" + bytes.fromhex("01028000ffff"))
RGB_16 = png(1, 1, 16, 2, b"\0" + bytes.fromhex("ff00 8012 01ff".replace(" ", "")))
BOMB = png(20_000, 20_000, 8, 2, b"")
LARGE = encoded(size=(64, 48))

# name, content, and the pixels' first row or rows, or what the reason says
CASES = {
    "truncated jpeg": ("a.jpg", saved(photo(), "JPEG")[:-900], "truncated"),
    "truncated png": ("a.png", saved(photo(), "PNG")[:-3000], "truncated"),
    "zero bytes": ("a.jpg", b"", "empty file"),
    "not an image": ("a.jpg", b"<html>404 not found</html>", "not an image of a known format"),
    "a picture that runs a program": ("a.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    "decompression bomb": ("a.png", BOMB, "pixels"),
    "floating point": ("a.tif", saved(Image.new("F", (2, 2), 0.5), "TIFF"), "floating-point"),
    "plain": ("a.png", saved(one_of_each("RGB", RED, GREEN, BLUE), "PNG"), [[RED, GREEN, BLUE]]),
    # (255 - c) * (255 - k) / 255 of each channel
    "cmyk": (
        "a.tif",
        saved(one_of_each("CMYK", (0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 155)), "TIFF"),
        [[WHITE, (0, 255, 255), GREY]],
    ),
    "cmyk jpeg": ("a.jpg", saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), [[RED] * 8] * 8),
    "16-bit grey": ("a.png", GREY_16, [[(1, 1, 1), (128, 128, 128), WHITE]]),
    "16-bit rgb": ("a.png", RGB_16, [[(255, 128, 1)]]),
    "palette with transparency": ("a.png", palette_with_transparency(), [[RED, WHITE]]),
    "rgba": (
        "a.png",
        saved(one_of_each("RGBA", (*RED, 255), (*RED, 0), (*RED, 51)), "PNG"),
        [[RED, WHITE, (255, 204, 204)]],
    ),
    "grey with alpha": ("a.png", saved(one_of_each("LA", (100, 255), (100, 0)), "PNG"), [[GREY, WHITE]]),
    "grey": ("a.png", saved(one_of_each("L", 100, 255), "PNG"), [[GREY, WHITE]]),
    "black and white": ("a.png", saved(one_of_each("1", 0, 255), "PNG"), [[(0, 0, 0), WHITE]]),
    "exif-rotated": ("a.png", rotated(), [[RED, RED], [RED, RED], [BLUE, BLUE], [BLUE, BLUE]]),
    "animated": ("a.gif", animation(), [[RED, RED], [RED, RED]]),
    "1x1": ("a.png", encoded(100, (1, 1)), [[GREY]]),
    "odd characters": ("ü \"'%20\n{0}*?.png", encoded(100, (1, 1)), [[GREY]]),
    "name that is not UTF-8": (os.fsdecode(b"caf\xe9.png"), encoded(100, (1, 1)), [[GREY]]),
    "broken symlink": ("a.png", None, "cannot be read: No such file or directory"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_is_decoded_or_explained(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    name, content, expected = CASES[case]
    (tmp_path / "z.png").write_bytes(LARGE)  # the file after a bad one is read all the same
    if content is None:
        (tmp_path / name).symlink_to(tmp_path / "gone.png")
    else:
        (tmp_path / name).write_bytes(content)
    source = open_source(Data(kind="folder", path=str(tmp_path), test_fraction=0.5))
    splits = pickle.loads(pickle.dumps(source)).splits
    pictures = sorted((p for split in splits.values() for p in read_all(split)), key=lambda p: p.name == "z.png")
    found, after = pictures

    assert json.loads(json.dumps(found.name)) == found.name
    assert found.name.encode("utf-8").decode() == found.name
    pixels = found.content if isinstance(found.content, BadImage) else decode(found.content)
    if isinstance(expected, str):
        assert isinstance(pixels, BadImage)
        assert expected in pixels.reason
        assert "\n" not in pixels.reason
    else:
        assert not isinstance(pixels, BadImage), pixels.reason
        assert pixels.dtype == np.uint8
        np.testing.assert_allclose(pixels.astype(int), expected, atol=1 if name.endswith("jpg") else 0)
        assert decode_shrunk(found.content, 1)[1] == pixels.shape[:2]
    assert decode(after.content).shape == (48, 64, 3)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = png(13_500, 13_500, 1, 0, b"\0" * 1688 * 13_500)  # 23 MB of zeros: a whole file, 182 million pixels
    assert "pixels" in decode(whole).reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow warns from 89 million on
        assert decode(png(10_000, 10_000, 1, 0, b"\0" * 1251 * 10_000)).shape == (10_000, 10_000, 3)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)  # a program that has turned Pillow's own check off
    assert decode(whole) == BadImage("13500x13500 pixels; 1 to 178956970 are decoded")
