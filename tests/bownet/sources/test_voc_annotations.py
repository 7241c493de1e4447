"""Annotations of VOC without their images: what is there, what cannot be read, and boxes outside of the image."""

import re
from pathlib import Path

import pytest
from made_images import SHARED

from bownet.config import Data
from bownet.images.decode import BadImage
from bownet.images.scenes_voc import write_vocdevkit
from bownet.images.sources import open_source
from bownet.images.sources.voc import VocListing
from bownet.images.sources.voc_annotations import Annotations, box_outside, read_annotations


def read(path: Path, split: str = "train") -> Annotations:
    listing = open_source(Data(kind="voc", path=str(path), voc_train="trainval07")).splits[split]
    assert isinstance(listing, VocListing)
    return read_annotations(listing)


def test_of_a_devkit_in_order(tmp_path: Path) -> None:
    root = write_vocdevkit(tmp_path, trainval=6, test=2, seed=1, height=60, width=80)
    (root / "Annotations/000002.xml").write_text("<annotation><obj")
    (root / "Annotations/000003.xml").unlink()
    (root / "JPEGImages/000004.jpg").unlink()
    found = read(tmp_path)
    source = open_source(Data(kind="voc", path=str(tmp_path), voc_train="trainval07")).splits["train"]
    pictures = [*source.part([0, 4, 5]).read()]
    assert found.found == [picture.annotation for picture in pictures]
    assert [text.split(":")[0] for text in found.unreadable] == [
        f"VOC2007/Annotations/{name}.xml" for name in ("000002", "000003")
    ]
    assert found.outside == []


@pytest.mark.parametrize("number", ["1e999", "-inf", "nan", "wide"])
def test_numbers_that_are_none(tmp_path: Path, number: str) -> None:
    """Of a box they are refused; without a size in the XML, the image itself tells it."""
    root = write_vocdevkit(tmp_path, trainval=3, test=1, seed=1, height=60, width=80)
    box, size = (root / f"Annotations/{name}.xml" for name in ("000001", "000002"))
    box.write_text(re.sub("<xmax>.*?</xmax>", f"<xmax>{number}</xmax>", box.read_text(), count=1))
    size.write_text(re.sub("<width>.*?</width>", f"<width>{number}</width>", size.read_text(), count=1))
    found = read(tmp_path)
    reason = f"xmax is '{number}'; write a finite number of pixels"
    assert found.unreadable == [f"VOC2007/Annotations/000001.xml: {reason}"]
    assert (len(found.found), found.outside) == (2, [])
    source = open_source(Data(kind="voc", path=str(tmp_path), voc_train="trainval07")).splits["train"]
    (first,) = source.part([0]).read()
    assert (first.name, first.content) == ("VOC2007/JPEGImages/000001.jpg", BadImage(f"its annotation: {reason}"))


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ([1, 1, 80, 60], None),
        ([0, 0, 81, 61], None),  # by a pixel, from rounding
        ([-1, 5, 20, 20], "the box -1,5,20,20 of a cat is outside of the image of 80x60 pixels"),
        ([1, 1, 82, 60], "the box 1,1,82,60 of a cat is outside of the image of 80x60 pixels"),
        ([1, 1, 60, 80], "the box 1,1,60,80 of a cat is outside of the image of 80x60 pixels"),
        ([9, 1, 8, 60], "the box 9,1,8,60 of a cat is empty"),
        ([9, 1, 9, 1], None),  # one pixel
    ],
)
def test_a_box(box: list[int], reason: str | None) -> None:
    whole = {"class": "dog", "box": [1, 1, 80, 60]}
    assert box_outside({"boxes": [whole, {"class": "cat", "box": box}]}, 80, 60) == reason


@pytest.mark.skipif(not (SHARED / "VOCdevkit").exists(), reason="../shared/data is not here")
def test_real_ones_are_all_good() -> None:
    for split, count in (("train", 250), ("test", 150)):
        found = read(SHARED / "VOCdevkit", split)
        assert (len(found.found), found.unreadable, found.outside) == (count, [], [])
