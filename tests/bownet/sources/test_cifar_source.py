"""CIFAR: splits, novel categories and mistakes, on batches of a few images in the original format."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from made_cifar import HUNDRED, TEN, planes, write_batch, write_cifar10, write_cifar100
from torchvision import datasets

from bownet.config import Data
from bownet.images.sources import open_source
from bownet.images.sources.cifar import NOVEL


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    write_cifar10(tmp_path, monkeypatch)
    source = open_source(Data(kind="cifar10", path=str(tmp_path / inside)))
    train, test = source.splits["train"], source.splits["test"]
    assert source.categories == tuple(TEN)
    assert train.labels.tolist() == [1, 0, 9, 1, 2, 0, 9, 1, 3, 0, 9, 1, 4, 0, 9, 1, 5, 0, 9, 1]
    assert test.labels.tolist() == [7, 8, 9]
    picture = next(pickle.loads(pickle.dumps(train.part(np.array([17])))).read())
    assert picture.name == "train#17"
    assert picture.content.shape == (32, 32, 3)
    assert picture.content[5, 20].tolist() == [21, 10, 20]
    assert [*source.splits] == ["train", "test"]
    assert source.bytes_per_image == 0


def test_cifar100_has_novel_classes_among_its_test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar100(tmp_path, monkeypatch)
    source = open_source(Data(kind="cifar100", path=str(tmp_path)))
    assert {s: len(x) for s, x in source.splits.items()} == {"train": 200, "test": 100, "novel": 20}
    novel = source.splits["novel"]
    assert {source.categories[label] for label in novel.labels} == set(NOVEL)
    whale = HUNDRED.index("whale")
    row = novel.labels.tolist().index(whale)
    assert next(novel.part(np.array([row])).read()).name == f"test#{whale}"


def test_the_fingerprint_follows_pixels_not_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints = []
    for place in ("a", "b"):
        write_cifar10(tmp_path / place, monkeypatch)
        prints.append(open_source(Data(kind="cifar10", path=str(tmp_path / place))).fingerprint)
    assert prints[0] == prints[1]
    changed = {"data": planes(101, 3), "labels": [7, 8, 9]}
    md5 = write_batch(tmp_path / "a/cifar-10-batches-py/test_batch", changed)
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [["test_batch", md5]])
    assert open_source(Data(kind="cifar10", path=str(tmp_path / "a"))).fingerprint != prints[0]


def test_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.CIFAR100, "url", "http://127.0.0.1:9/cifar-100-python.tar.gz")  # nobody answers
    message = (
        r"data.path=.*: CIFAR-100 is not there and cannot be downloaded \(.*refused.*\); unpack cifar-100-python.tar.gz"
    )
    with pytest.raises(ValueError, match=message) as caught:
        open_source(Data(kind="cifar100", path=str(tmp_path)))
    assert "\n" not in str(caught.value)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file: is a file; name the folder with cifar-10-batches-py"):
        open_source(Data(kind="cifar10", path=str(tmp_path / "file")))
    with pytest.raises(ValueError, match="s3://bucket/cifar: CIFAR-10 is read from a local folder"):
        open_source(Data(kind="cifar10", path="s3://bucket/cifar"))
