"""MiniImageNet: base, validation and novel classes from its three lists."""

from pathlib import Path

import numpy as np
import pytest
from made_images import SHARED, read_all, value_of, write

from bownet.config import Data
from bownet.images.decode import BadImage, decode
from bownet.images.sources import open_source
from bownet.images.sources.miniimagenet import open_miniimagenet


def mini(path: Path, **settings: object) -> Data:
    return Data(kind="miniimagenet", path=str(path), **settings)


def write_mini(root: Path) -> Path:
    lists = {"train": ("n3", "n1"), "val": ("n2",), "test": ("n0", "n9")}
    value = 0
    for name, classes in lists.items():
        lines = ["filename,label"]
        for wnid in classes:
            for i in range(5):
                write(root / "images", {f"{wnid}_{i}.jpg": value})
                lines.append(f"{wnid}_{i}.jpg,{wnid}")
                value += 10
        (root / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return root


def test_three_sets_of_classes(tmp_path: Path) -> None:
    source = open_source(mini(write_mini(tmp_path), novel_per_class=3))
    assert source.categories == ("n1", "n3", "n2", "n0", "n9")
    labels = {s: np.bincount(x.labels, minlength=5).tolist() for s, x in source.splits.items()}
    assert labels == {
        "train": [4, 4, 0, 0, 0],
        "test": [1, 1, 0, 0, 0],
        "val": [0, 0, 5, 0, 0],
        "novel": [0, 0, 0, 3, 3],
    }
    everything = {p.name: value_of(p) for s in ("train", "test") for p in read_all(source.splits[s])}
    # the list has n3 first, so that its images have the values 0, 10, 20, 30, 40
    assert everything == {f"images/n3_{i}.jpg": 10 * i for i in range(5)} | {
        f"images/n1_{i}.jpg": 50 + 10 * i for i in range(5)
    }


def test_a_missing_image_is_a_bad_one(tmp_path: Path) -> None:
    (write_mini(tmp_path) / "images/n0_2.jpg").unlink()
    source = open_miniimagenet(mini(tmp_path))
    assert source.notes == ("1 of 10 files of test.csv are not in images/",)
    assert read_all(source.splits["novel"])[2].content == BadImage("cannot be read: No such file or directory")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.csv", None, r"no train.csv there; MiniImageNet is images/, train.csv, val.csv and test.csv"),
        ("test.csv", "file,label\nx,y\n", r"test.csv has no column filename, only file, label"),
        ("test.csv", "filename,label\nn1_0.jpg,n1\n", r"class n1 is in two lists"),
        ("train.csv", "filename,label\n", r"train.csv lists no images"),
        ("train.csv", "filename,label\nz.jpg,n1\n", r"no image of train.csv is in images/"),
        ("train.csv", "filename,label\nn1_0.jpg,n1\nn1_1.jpg,n1\n", r"all training images are of one class, n1"),
    ],
)
def test_messages(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    write_mini(tmp_path)
    (tmp_path / name).unlink()
    if content:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        open_source(mini(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not (SHARED / "mini-imagenet").exists(), reason="../shared/data is not here")
def test_real_images() -> None:
    source = open_source(mini(SHARED / "mini-imagenet"))
    assert len(source.categories) == 20
    assert {s: len(x) for s, x in source.splits.items()} == {"train": 800, "val": 400, "novel": 600, "test": 200}
    pictures = list(source.splits["novel"].part(np.array([0, 599])).read())
    assert pictures[0].name == "images/n0198127600000002.jpg"
    assert source.categories[source.splits["novel"].labels[0]] == "n01981276"
    assert all(decode(p.content).shape == (84, 84, 3) for p in pictures)
