"""Places205: its lists, and the places where its images lie."""

from pathlib import Path

import pytest
from made_images import read_all, value_of, write

from bownet.config import Data
from bownet.images.decode import BadImage
from bownet.images.sources import open_source

DEEP = "data/vision/torralba/deeplearning/images256"


def places(path: Path) -> Data:
    return Data(kind="places205", path=str(path))


def write_places(root: Path, images: str = DEEP, lists: str = "trainvalsplit_places205") -> Path:
    write(root / images, {"a/abbey/1.jpg": 1, "a/abbey/2.jpg": 2, "b/bar/1.jpg": 3, "c/church/outdoor/1.jpg": 4})
    (root / lists).mkdir(parents=True, exist_ok=True)
    train = "c/church/outdoor/1.jpg 2\na/abbey/1.jpg 0\nb/bar/1.jpg 1\n"
    (root / lists / "train_places205.csv").write_text(train)
    (root / lists / "val_places205.csv").write_text("a/abbey/2.jpg 0\nb/bar/gone.jpg 1\n")
    return root


@pytest.mark.parametrize(("images", "lists"), [(DEEP, "trainvalsplit_places205"), ("images256", ""), ("", "")])
def test_lists_and_images(tmp_path: Path, images: str, lists: str) -> None:
    source = open_source(places(write_places(tmp_path, images, lists)))
    train, test = source.splits["train"], source.splits["test"]
    assert source.categories == ("abbey", "bar", "church/outdoor")
    assert [(p.name, value_of(p)) for p in read_all(train)] == [
        ("a/abbey/1.jpg", 1),
        ("b/bar/1.jpg", 3),
        ("c/church/outdoor/1.jpg", 4),
    ]
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, 2], [0, 1])
    pictures = read_all(test)
    assert value_of(pictures[0]) == 2
    assert isinstance(pictures[1].content, BadImage)
    assert "1 of 2 files of val_places205.csv are not there" in source.notes


def test_messages(tmp_path: Path) -> None:
    def fails(message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            open_source(places(tmp_path))
        assert "\n" not in str(caught.value)

    fails(r"no train_places205.csv there or in trainvalsplit_places205/")
    lists = write_places(tmp_path, "wrong") / "trainvalsplit_places205"
    fails(r"a/abbey/1.jpg of train_places205.csv is neither there nor in data/vision/.*; unpack imagesPlaces205")
    (lists / "val_places205.csv").write_text("a/abbey/2.jpg\n")
    fails(r"line 1 of val_places205.csv is 'a/abbey/2.jpg', not a path and a class")
    (lists / "train_places205.csv").write_text("")
    fails(r"train_places205.csv lists no images")
