"""Views of encoded photos against torchvision's transforms of the same pixels."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as V

from bownet.images.decode import BadImage
from bownet.images.perturb import CROP_DRAWS, crop_windows
from bownet.images.scenes import draw, layout_of_scenes
from bownet.images.views import centre_view, fit_square, random_view, shifted_view, squashed_view

AREA, ASPECT = (0.2, 1.0), (3 / 4, 4 / 3)


def picture(height: int, width: int) -> NDArray[np.uint8]:
    return draw(layout_of_scenes(1, 3), height, width, 3).images_NHWC[0]


def encoded(pixels: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, kind, quality=95)
    return buffer.getvalue()


@pytest.mark.parametrize(("height", "width"), [(60, 80), (81, 50), (33, 33), (20, 31)])
@pytest.mark.parametrize("size", [32, 33])
def test_fit_square_equals_torchvision(height: int, width: int, size: int) -> None:
    pixels = picture(height, width)
    expected = v2.Compose([v2.Resize(size), v2.CenterCrop(size)])(Image.fromarray(pixels))
    ours = fit_square(pixels, size)
    assert ours.dtype == np.uint8
    assert ours.shape == (size, size, 3)
    assert np.array_equal(ours, np.asarray(expected))


def test_fit_square_leaves_squares_of_that_size_alone() -> None:
    pixels = picture(32, 32)
    assert np.array_equal(fit_square(pixels, 32), pixels)


@pytest.mark.parametrize(("height", "width"), [(60, 80), (101, 50)])
def test_centre_view_equals_torchvision(height: int, width: int) -> None:
    pixels = picture(height, width)
    expected = v2.Compose([v2.Resize(40), v2.CenterCrop(35)])(Image.fromarray(pixels))
    assert np.array_equal(centre_view(encoded(pixels), 35, 40), np.asarray(expected))


def test_random_view_is_torchvisions_resized_crop_of_the_drawn_window() -> None:
    pixels = picture(60, 80)
    for seed in range(20):
        top, left, h, w = crop_windows(
            np.random.default_rng(seed).random((CROP_DRAWS, 1)), 60, 80, AREA, ASPECT
        ).ravel()
        expected = V.resized_crop(Image.fromarray(pixels), top, left, h, w, [32, 32])
        ours = random_view(encoded(pixels), 32, AREA, ASPECT, np.random.default_rng(seed))
        assert np.array_equal(ours, np.asarray(expected))


def test_a_large_jpeg_decoded_small_shows_the_same() -> None:
    """480 x 640 pixels are more than views of 40 need: the JPEG is decoded at a quarter or half of its size."""
    pixels = picture(480, 640)
    jpeg, png = encoded(pixels, "JPEG"), encoded(pixels)
    for seed in range(10):
        small, full = (random_view(c, 40, AREA, ASPECT, np.random.default_rng(seed)) for c in (jpeg, png))
        assert np.abs(small.astype(float) - full).mean() < 3  # of 255; another window differs by far more
    other = random_view(png, 40, AREA, ASPECT, np.random.default_rng(99))
    assert np.abs(other.astype(float) - full).mean() > 8
    assert np.abs(centre_view(jpeg, 40, 48).astype(float) - centre_view(png, 40, 48)).mean() < 3


def test_a_photo_that_is_too_small_is_enlarged() -> None:
    assert random_view(encoded(picture(16, 20)), 32, AREA, ASPECT, np.random.default_rng(0)).shape == (32, 32, 3)
    assert centre_view(encoded(picture(16, 20)), 32, 36).shape == (32, 32, 3)


def test_bad_bytes_are_a_bad_image() -> None:
    assert isinstance(centre_view(b"not an image", 32, 36), BadImage)
    assert isinstance(random_view(b"not an image", 32, AREA, ASPECT, np.random.default_rng(0)), BadImage)


def test_a_view_larger_than_the_scaled_image_is_an_error() -> None:
    with pytest.raises(ValueError, match="size=40, resize=32"):
        centre_view(encoded(picture(20, 20)), 40, 32)


def test_shifted_view_lies_anywhere_in_the_scaled_image() -> None:
    """A picture whose pixels are their own coordinates, of the final scale: every window is found at its place."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.arange(40)[:, None], np.arange(60)
    places = set()
    for seed in range(300):
        view = shifted_view(encoded(pixels), 35, 40, np.random.default_rng(seed))
        assert isinstance(view, np.ndarray)
        top, left = int(view[0, 0, 0]), int(view[0, 0, 1])
        assert np.array_equal(view, pixels[top : top + 35, left : left + 35])
        places.add((top, left))
    assert {top for top, _ in places} == set(range(6))
    assert {left for _, left in places} == set(range(26))


@pytest.mark.parametrize(("height", "width"), [(1, 20_000), (20_000, 1), (1, 1), (1, 100)])
def test_threads_and_dots_become_squares(height: int, width: int) -> None:
    assert (fit_square(np.full((height, width, 3), 7, np.uint8), 224) == 7).all()


@pytest.mark.parametrize(("height", "width"), [(60, 80), (101, 50), (40, 40), (30, 45)])
def test_squashed_view_equals_torchvision(height: int, width: int) -> None:
    """The whole image, not its centre; small ones are enlarged."""
    pixels = picture(height, width)
    expected = v2.Compose([v2.Resize(40), v2.Resize((35, 35))])(Image.fromarray(pixels))
    ours = squashed_view(encoded(pixels), 35, 40)
    assert isinstance(ours, np.ndarray)
    assert np.array_equal(ours, np.asarray(expected))


def test_squashed_view_of_a_thread_and_of_no_image() -> None:
    thread = np.repeat(np.arange(200, dtype=np.uint8)[None, :, None], 3, 2)  # 1x200: its ends are kept
    view = squashed_view(encoded(thread), 20, 24)
    assert isinstance(view, np.ndarray)
    assert view.shape == (20, 20, 3)
    assert view[0, 0, 0] < 10
    assert view[0, -1, 0] > 190
    assert isinstance(squashed_view(b"no image", 20, 24), BadImage)
