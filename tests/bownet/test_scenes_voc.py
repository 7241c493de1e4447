"""Scenes written as VOC: readable by others, lists that agree with annotations, the same bytes every time."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import VOCDetection

from bownet.images.scenes import Drawing, Layout, layout_of_scenes
from bownet.images.scenes_voc import NAMES, Thing, _presence, _things, write_vocdevkit

TRAINVAL, TEST, HEIGHT, WIDTH, SEED = 15, 9, 60, 80, 5


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vocdevkit(tmp_path_factory.mktemp("voc"), TRAINVAL, TEST, SEED, HEIGHT, WIDTH)


def members(root: Path, image_set: str) -> list[str]:
    return (root / "ImageSets" / "Main" / f"{image_set}.txt").read_text().split()


def annotated(root: Path, name: str) -> list[ElementTree.Element]:
    return ElementTree.parse(root / "Annotations" / f"{name}.xml").getroot().findall("object")


def test_image_sets(root: Path) -> None:
    assert root.parts[-2:] == ("VOCdevkit", "VOC2007")
    assert members(root, "trainval") == [f"{i:06d}" for i in range(1, 16)]
    assert members(root, "test") == [f"{i:06d}" for i in range(16, 25)]
    train, val = members(root, "train"), members(root, "val")
    assert (len(train), len(val)) == (8, 7)
    assert sorted(train + val) == members(root, "trainval")
    assert len(list((root / "ImageSets" / "Main").iterdir())) == 4 * (1 + 20)


def test_annotations_have_the_official_fields(root: Path) -> None:
    for name in members(root, "trainval") + members(root, "test"):
        tree = ElementTree.parse(root / "Annotations" / f"{name}.xml").getroot()
        assert [e.tag for e in tree][:6] == ["folder", "filename", "source", "owner", "size", "segmented"]
        assert tree.findtext("folder") == "VOC2007"
        assert tree.findtext("filename") == f"{name}.jpg"
        with Image.open(root / "JPEGImages" / f"{name}.jpg") as image:
            assert image.format == "JPEG"
            assert image.mode == "RGB"
            size = [str(v) for v in (*image.size, 3)]
        assert [tree.findtext(f"size/{side}") for side in ("width", "height", "depth")] == size == ["80", "60", "3"]
        for thing in tree.findall("object"):
            assert [e.tag for e in thing] == ["name", "pose", "truncated", "difficult", "bndbox"]
            assert [e.tag for e in thing.find("bndbox") or ()] == ["xmin", "ymin", "xmax", "ymax"]
            assert thing.findtext("name") in NAMES
            assert " " not in (thing.findtext("name") or " ")


def test_boxes_lie_inside_and_count_from_one(root: Path) -> None:
    touching = set()
    for name in members(root, "trainval") + members(root, "test"):
        assert annotated(root, name), f"{name} has no object"
        for thing in annotated(root, name):
            x0, y0, x1, y1 = (int(thing.findtext(f"bndbox/{k}") or 0) for k in ("xmin", "ymin", "xmax", "ymax"))
            assert 1 <= x0 <= x1 <= WIDTH
            assert 1 <= y0 <= y1 <= HEIGHT
            edges = {"left": x0 == 1, "top": y0 == 1, "right": x1 == WIDTH, "bottom": y1 == HEIGHT}
            assert thing.findtext("truncated") == str(int(any(edges.values())))
            touching |= {edge for edge, touched in edges.items() if touched}
    assert {"left", "right"} <= touching  # both ends of the range occur, so an offset by one would show


def test_class_lists_agree_with_the_annotations(root: Path) -> None:
    seen = set()
    for image_set in ("train", "val", "trainval", "test"):
        for category in NAMES:
            lines = (root / "ImageSets" / "Main" / f"{category}_{image_set}.txt").read_text().splitlines()
            assert [line.split()[0] for line in lines] == members(root, image_set)
            for line in lines:
                name, flag = line.split()
                assert line == f"{name} {flag:>2}"
                difficult = [t.findtext("difficult") for t in annotated(root, name) if t.findtext("name") == category]
                expected = "1" if "0" in difficult else "0" if difficult else "-1"
                assert flag == expected
                seen.add(flag)
    assert seen == {"1", "0", "-1"}


def test_torchvision_reads_it(root: Path) -> None:
    for image_set, count in (("train", 8), ("val", 7), ("trainval", TRAINVAL), ("test", TEST)):
        data = VOCDetection(str(root.parents[1]), year="2007", image_set=image_set, download=False)
        assert len(data) == count
        image, target = data[0]
        assert image.size == (WIDTH, HEIGHT)
        assert target["annotation"]["filename"] == f"{members(root, image_set)[0]}.jpg"
        assert {thing["name"] for thing in target["annotation"]["object"]} <= set(NAMES)


def test_objects_are_those_of_the_layout(root: Path) -> None:
    layout = layout_of_scenes(TRAINVAL + TEST, SEED + (2007 << 40))
    for name, category_M in zip(members(root, "trainval") + members(root, "test"), layout.category_NM, strict=True):
        drawn = [NAMES[c] for c in category_M if c >= 0]
        assert {t.findtext("name") for t in annotated(root, name)} <= set(drawn)


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_same_seed_same_bytes(root: Path, tmp_path: Path) -> None:
    again = contents(write_vocdevkit(tmp_path / "again", TRAINVAL, TEST, SEED, HEIGHT, WIDTH))
    assert again == contents(root)
    assert len(again) == 2 * (TRAINVAL + TEST) + 4 * (1 + 20)
    other = contents(write_vocdevkit(tmp_path / "other", 2, 1, SEED + 1, HEIGHT, WIDTH))
    assert other["JPEGImages/000001.jpg"] != again["JPEGImages/000001.jpg"]


def test_another_year_has_other_pictures_and_may_stand_beside(root: Path, tmp_path: Path) -> None:
    first = write_vocdevkit(tmp_path, 2, 1, SEED, HEIGHT, WIDTH)
    second = write_vocdevkit(tmp_path, 2, 1, SEED, HEIGHT, WIDTH, year="2012")
    assert second == first.parent / "VOC2012"
    assert members(second, "trainval") == ["2012_000001", "2012_000002"]
    pictures = [contents(r / "JPEGImages") for r in (first, second)]
    assert not set(pictures[0].values()) & set(pictures[1].values())
    with pytest.raises(ValueError, match="VOC2012 is already there, use another folder"):
        write_vocdevkit(tmp_path, 2, 1, SEED, HEIGHT, WIDTH, year="2012")


def test_too_few_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="trainval=1, test=1: use at least 2 and 1"):
        write_vocdevkit(tmp_path, 1, 1, SEED)


def test_what_is_annotated_by_hand() -> None:
    # Picture 100 x 160. Well shown; a fifth shown; hardly shown; no object; small; hidden; in this order.
    category_NM = np.array([[1, 8, 9, -1, 0, 16]])
    box_NM4 = np.array([[[0, 10, 50, 60], [60, 10, 95, 50], [100, 0, 130, 30], [0] * 4, [70, 60, 89, 99], [0] * 4]])
    visible_NM = np.array([[0.9, 0.2, 0.05, 0, 1, 0]], np.float32)
    layout = Layout(category_NM, visible_NM, visible_NM, visible_NM)
    things = _things(layout, Drawing(np.zeros((1, 100, 160, 3), np.uint8), box_NM4, visible_NM), 0)
    assert things == [
        Thing("striped_tree", truncated=True, difficult=False, xmin=1, ymin=11, xmax=50, ymax=60),
        Thing("plain_mushroom", truncated=False, difficult=True, xmin=61, ymin=11, xmax=95, ymax=50),
        Thing("plain_tree", truncated=False, difficult=True, xmin=71, ymin=61, xmax=89, ymax=99),
    ]
    assert [_presence(things, c) for c in ("striped_tree", "plain_tree", "dotted_vase")] == [1, 0, -1]


def test_the_most_visible_object_is_annotated_even_if_hardly_seen() -> None:
    visible_NM = np.array([[0.04, 0.08]], np.float32)
    layout = Layout(np.array([[0, 4]]), visible_NM, visible_NM, visible_NM)
    box_NM4 = np.array([[[10, 10, 12, 12], [40, 10, 90, 60]]])
    things = _things(layout, Drawing(np.zeros((1, 100, 160, 3), np.uint8), box_NM4, visible_NM), 0)
    assert [(t.name, t.difficult) for t in things] == [("plain_house", True)]
