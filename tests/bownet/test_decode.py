"""The decoder itself: orientations, sizes and shrunk JPEGs. Kinds of files are in sources/test_bad_images.py."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageFile

from bownet.images.decode import BadImage, decode, decode_shrunk

A, B, C, D, E, F = ((value, value, value) for value in (10, 20, 30, 40, 50, 60))
STORED = [[A, B, C], [D, E, F]]
# What a camera held in each of the eight ways means by the stored rows (EXIF 2.3, tag 274)
UPRIGHT = {
    1: [[A, B, C], [D, E, F]],
    2: [[C, B, A], [F, E, D]],
    3: [[F, E, D], [C, B, A]],
    4: [[D, E, F], [A, B, C]],
    5: [[A, D], [B, E], [C, F]],
    6: [[D, A], [E, B], [F, C]],
    7: [[F, C], [E, B], [D, A]],
    8: [[C, F], [B, E], [A, D]],
}


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_every_orientation_comes_upright(orientation: int, kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    content = saved(Image.fromarray(np.array(STORED, np.uint8)), kind, exif=turned(orientation), **options)
    expected = np.array(UPRIGHT[orientation])
    np.testing.assert_array_equal(decode(content), expected)
    assert decode_shrunk(content, 1)[1] == expected.shape[:2]


def test_damaged_exif_leaves_the_image_as_it_is() -> None:
    content = saved(Image.fromarray(np.array(STORED, np.uint8)), "PNG", exif=b"Exif\0\0MM\0*nonsense")
    np.testing.assert_array_equal(decode(content), STORED)


def gradient(width: int, height: int, **options: object) -> bytes:
    ramp = np.linspace(0, 255, width)[None, :, None] * np.ones((height, 1, 3))
    return saved(Image.fromarray(ramp.astype(np.uint8)), "JPEG", quality=95, **options)


@pytest.mark.parametrize(
    ("smallest_side", "shape"),
    [(301, (300, 400)), (151, (300, 400)), (150, (150, 200)), (75, (75, 100)), (1, (38, 50))],
)
def test_shrunk_keeps_the_shorter_side(smallest_side: int, shape: tuple[int, int]) -> None:
    pixels, full = decode_shrunk(gradient(400, 300), smallest_side)
    assert full == (300, 400)
    assert pixels.shape == (*shape, 3)
    np.testing.assert_allclose(pixels[0, :, 0], np.linspace(0, 255, shape[1]), atol=4)


def test_shrunk_is_upright_and_only_for_jpeg() -> None:
    pixels, full = decode_shrunk(gradient(400, 300, exif=turned(6)), 100)
    assert (pixels.shape, full) == ((200, 150, 3), (400, 300))
    assert pixels[0, 0, 0] < 10 < 245 < pixels[-1, 0, 0]  # the left side is up
    pixels, full = decode_shrunk(saved(Image.new("RGB", (400, 300)), "PNG"), 10)
    assert (pixels.shape, full) == ((300, 400, 3), (300, 400))
    grey, _ = decode_shrunk(saved(Image.new("L", (400, 300), 77), "JPEG"), 100)
    assert grey.shape == (150, 200, 3)
    assert np.abs(grey.astype(int) - 77).max() <= 1


def test_shrunk_explains_what_is_bad() -> None:
    for content in (b"", b"hello", gradient(40, 30)[:200]):
        assert isinstance(decode_shrunk(content, 10), BadImage)


def test_pillow_is_left_as_it_was() -> None:
    decode(gradient(40, 30)[:-100])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    assert Image.MAX_IMAGE_PIXELS == 89_478_485
