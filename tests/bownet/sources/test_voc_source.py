"""PASCAL VOC: a devkit drawn in the official format, hand-written XML, and real images."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from made_images import SHARED, read_all

from bownet.config import Data
from bownet.images.decode import BadImage, decode
from bownet.images.scenes_voc import NAMES, write_vocdevkit
from bownet.images.sources import open_source
from bownet.images.sources.voc import CLASSES, parse_annotation


def voc(path: Path, **settings: object) -> Data:
    return Data(kind="voc", path=str(path), **settings)


@pytest.fixture(scope="module")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("voc")
    write_vocdevkit(root, trainval=6, test=4, seed=1, height=60, width=80)
    write_vocdevkit(root, trainval=3, test=1, seed=1, height=60, width=80, year="2012")
    return root


@pytest.mark.parametrize(
    ("voc_train", "years"),
    [("trainval07", {"VOC2007": 6}), ("trainval12", {"VOC2012": 3}), ("trainval07+12", {"VOC2007": 6, "VOC2012": 3})],
)
@pytest.mark.parametrize("inside", ["", "VOCdevkit"])
def test_lists(devkit: Path, voc_train: str, years: dict[str, int], inside: str) -> None:
    source = open_source(voc(devkit / inside, voc_train=voc_train))
    train = read_all(source.splits["train"])
    assert {year: sum(p.name.startswith(year) for p in train) for year in years} == years
    assert len(train) == sum(years.values())
    assert [p.name for p in read_all(source.splits["test"])] == [
        f"VOC2007/JPEGImages/{i:06d}.jpg" for i in range(7, 11)
    ]
    assert source.splits["train"].labels is None
    assert source.categories == tuple(sorted(NAMES))


def test_annotations_agree_with_the_lists_of_classes(devkit: Path) -> None:
    """1 if there is the class, 0 if only difficult ones, else -1: ImageSets/Main says the same."""
    part = open_source(voc(devkit)).splits["test"].part(np.arange(4))
    pictures = {p.name[-10:-4]: p for p in pickle.loads(pickle.dumps(part)).read()}
    for name in NAMES:
        main = devkit / "VOCdevkit/VOC2007/ImageSets/Main" / f"{name}_test.txt"
        for image, presence in (line.split() for line in main.read_text().splitlines()):
            assert pictures[image].annotation["classes"].get(name, -1) == int(presence)
    for picture in pictures.values():
        assert json.loads(json.dumps(picture.annotation)) == picture.annotation
        assert picture.annotation["boxes"]


def test_an_annotation() -> None:
    xml = b"""<annotation><size><width>500</width></size>
      <object><name>dog</name><truncated>1</truncated><difficult>1</difficult>
        <part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part>
        <bndbox><xmax>324</xmax><xmin>263.9</xmin><ymin>211</ymin><ymax>339</ymax></bndbox></object>
      <object><name>cat</name><difficult>1</difficult>
        <bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></object>
      <object><name>dog</name><difficult>0</difficult>
        <bndbox><xmin>5</xmin><ymin>6</ymin><xmax>7</xmax><ymax>8</ymax></bndbox></object></annotation>"""
    assert parse_annotation(xml) == {
        "boxes": [
            {"class": "dog", "box": [264, 211, 324, 339], "difficult": True, "truncated": True},
            {"class": "cat", "box": [1, 2, 3, 4], "difficult": True, "truncated": False},
            {"class": "dog", "box": [5, 6, 7, 8], "difficult": False, "truncated": False},
        ],
        "classes": {"dog": 1, "cat": 0},
    }


def test_bad_files_and_the_fingerprint(tmp_path: Path) -> None:
    root = write_vocdevkit(tmp_path, trainval=3, test=2, seed=1, height=60, width=80)
    data = voc(tmp_path, voc_train="trainval07")
    before = open_source(data)
    xml = root / "Annotations/000001.xml"
    xml.write_text(xml.read_text().replace("<truncated>0", "<truncated>1", 1))  # the same size
    assert open_source(data).fingerprint != before.fingerprint
    (root / "JPEGImages/000002.jpg").unlink()
    (root / "Annotations/000003.xml").write_text("<annotation><obj")
    (root / "Annotations/000004.xml").unlink()
    after = open_source(data)
    assert after.notes == ("1 of 3 images of trainval07 are missing",)
    first, second, third = read_all(after.splits["train"])
    assert isinstance(first.content, bytes)
    assert second.content == BadImage("cannot be read: No such file or directory")
    assert third.content.reason.startswith("its annotation: ")
    fourth = read_all(after.splits["test"])[0]
    assert fourth.content == BadImage("its annotation: cannot be read: No such file or directory")


def test_messages(tmp_path: Path) -> None:
    write_vocdevkit(tmp_path, trainval=2, test=1, seed=1, height=60, width=80)
    needed = (
        r"no VOC2012/ImageSets/Main/trainval.txt, which data.voc_train=trainval07\+12 needs; unpack VOCtrainval_11-May"
    )
    with pytest.raises(ValueError, match=needed):
        open_source(voc(tmp_path))
    (tmp_path / "VOCdevkit/VOC2007/ImageSets/Main/test.txt").unlink()
    with pytest.raises(
        ValueError, match=r"no VOC2007/ImageSets/Main/test.txt, .*; unpack VOCtest_06-Nov-2007.tar there"
    ):
        open_source(voc(tmp_path, voc_train="trainval07"))


@pytest.mark.skipif(not (SHARED / "VOCdevkit").exists(), reason="../shared/data is not here")
def test_real_images() -> None:
    source = open_source(voc(SHARED / "VOCdevkit"))
    assert source.categories == CLASSES
    assert {s: len(x) for s, x in source.splits.items()} == {"train": 310, "test": 150}
    first = next(source.splits["train"].part(np.array([0])).read())
    assert first.name == "VOC2007/JPEGImages/000005.jpg"
    assert decode(first.content).shape == (375, 500, 3)
    assert first.annotation["classes"] == {"chair": 1}
    assert [box["difficult"] for box in first.annotation["boxes"]] == [False, False, True, False, True]
    assert first.annotation["boxes"][0]["box"] == [263, 211, 324, 339]
    main = SHARED / "VOCdevkit/VOC2007/ImageSets/Main"
    pictures = {p.name[-10:-4]: p for p in read_all(source.splits["test"])}
    for name in CLASSES:
        for image, presence in (line.split() for line in (main / f"{name}_test.txt").read_text().splitlines()):
            assert pictures[image].annotation["classes"].get(name, -1) == int(presence), (name, image)
