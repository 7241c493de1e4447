"""Boxes from VOC's to ours, what is wrong with some, and how they follow their images."""

import numpy as np
import pytest
import torch
from detection_images import objects

from bownet.images.decode import BadImage, image_size
from evaluation.detection.objects import objects_of
from evaluation.detection.views import fitted, plain_view, random_view


def annotation(*boxes: list[int], name: str = "dog", difficult: bool = False) -> dict[str, object]:
    return {"boxes": [{"class": name, "box": box, "difficult": difficult, "truncated": False} for box in boxes]}


def test_a_box_over_the_whole_image() -> None:
    """VOC's pixels are numbered 1..W and inclusive: a 30x20 image is covered by (1, 1, 30, 20)."""
    found = objects_of(annotation([1, 1, 30, 20], [3, 4, 3, 4], difficult=True), (20, 30), ["cat", "dog"], "a.jpg")
    assert found.boxes_M4.tolist() == [[0, 0, 30, 20], [2, 3, 3, 4]]
    assert found.labels_M.tolist() == [1, 1]
    assert found.difficult_M.tolist() == [True, True]


def test_a_pixel_outside_is_cut_and_more_is_refused() -> None:
    found = objects_of(annotation([0, 0, 31, 21]), (20, 30), ["dog"], "a.jpg")
    assert found.boxes_M4.tolist() == [[0, 0, 30, 20]]
    for box in ([1, 1, 32, 20], [1, 1, 30, 22], [-1, 1, 30, 20], [1, -1, 30, 20]):
        with pytest.raises(
            ValueError, match=r"a.jpg: the box dog \[.*\] leaves the image of 30x20 pixels by more than 1"
        ):
            objects_of(annotation(box), (20, 30), ["dog"], "a.jpg")


@pytest.mark.parametrize("box", [[5, 5, 4, 9], [5, 5, 9, 4]])
def test_an_empty_box(box: list[int]) -> None:
    with pytest.raises(ValueError, match=r"a.jpg: the box dog .* is empty; mend its XML"):
        objects_of(annotation(box), (20, 30), ["dog"], "a.jpg")


def test_a_box_that_is_only_outside() -> None:
    with pytest.raises(ValueError, match=r"dog \[31, 1, 31, 5\] is outside of its 30x20 pixels"):
        objects_of(annotation([31, 1, 31, 5]), (20, 30), ["dog"], "a.jpg")


def test_an_unknown_class() -> None:
    with pytest.raises(ValueError, match=r"a.jpg: class 'cow' of an object is not among cat, dog"):
        objects_of(annotation([1, 1, 2, 2], name="cow"), (20, 30), ["cat", "dog"], "a.jpg")


def test_no_objects() -> None:
    found = objects_of({"boxes": []}, (20, 30), ["dog"], "a.jpg")
    assert found.boxes_M4.shape == (0, 4)
    assert len(found.flipped(30).resized((20, 30), (40, 60))) == 0


@pytest.mark.parametrize(
    ("size", "short", "longest", "expected"),
    [
        ((375, 500), 800, 1333, (800, 1067)),  # 500 * 800 / 375 = 1066.67
        ((500, 375), 600, 1333, (800, 600)),
        ((100, 500), 800, 1333, (267, 1333)),  # the long side decides: 100 * 1333 / 500 = 266.6
        ((64, 64), 32, 1333, (32, 32)),
    ],
)
def test_sizes(size: tuple[int, int], short: int, longest: int, expected: tuple[int, int]) -> None:
    assert fitted(size, short, longest) == expected


def test_boxes_follow_the_image() -> None:
    there = objects([[2.0, 1.0, 6.0, 5.0]], [0])
    assert there.resized((10, 20), (20, 60)).boxes_M4.tolist() == [[6, 2, 18, 10]]
    assert there.flipped(20).boxes_M4.tolist() == [[14, 1, 18, 5]]
    assert torch.equal(there.flipped(20).flipped(20).boxes_M4, there.boxes_M4)


def test_a_view_keeps_the_object_in_its_box() -> None:
    """A white object on black: whatever is drawn, the box must hold the white pixels and nothing else."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[8:24, 12:36] = 255
    there = objects([[12.0, 8.0, 36.0, 24.0]], [0])
    seen = set()
    for seed in range(12):
        view = random_view(pixels, there, (80, 120), 1000, np.random.default_rng(seed))
        assert view.objects is not None
        assert view.size == (40, 60)
        x0, y0, x1, y1 = (round(v) for v in view.objects.boxes_M4[0].tolist())
        white = view.pixels_CHW[0] > 127
        columns, rows = white.any(0).nonzero().ravel().tolist(), white.any(1).nonzero().ravel().tolist()
        assert (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1) == (x0, y0, x1, y1)
        seen.add((view.pixels_CHW.shape[1], x0 < view.pixels_CHW.shape[2] - x1))
    assert len(seen) >= 3, "sizes and flips must vary"
    again = random_view(pixels, there, (80, 120), 1000, np.random.default_rng(3))
    assert torch.equal(
        again.pixels_CHW, random_view(pixels, there, (80, 120), 1000, np.random.default_rng(3)).pixels_CHW
    )


def test_a_test_view_is_never_flipped() -> None:
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    assert torch.equal(plain_view(pixels, 4, 100).pixels_CHW, torch.from_numpy(pixels.transpose(2, 0, 1).copy()))


def test_the_size_from_the_head_of_a_file() -> None:
    from io import BytesIO

    from PIL import Image

    file = BytesIO()
    Image.new("RGB", (30, 20)).save(
        file,
        "JPEG",
        exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03"
        b"\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00",
    )  # lies on its side
    assert image_size(file.getvalue()) == (30, 20)
    assert isinstance(image_size(b"nothing"), BadImage)
