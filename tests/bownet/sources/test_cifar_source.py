"""CIFAR in its original pickled batches of a few images; torchvision's checksums are set to those of the files."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from bownet.config import Data
from bownet.images.sources import open_source
from bownet.images.sources.cifar import NOVEL

TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
HUNDRED = sorted([*NOVEL, *(f"other_{i}" for i in range(80))])


def write_batch(path: Path, content: dict[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
    return hashlib.md5(path.read_bytes()).hexdigest()


def planes(first: int, count: int) -> np.ndarray:
    """Rows of the batches: 1024 reds, 1024 greens, 1024 blues. Red counts images, green is 10, blue rises by column."""
    red = np.repeat(np.arange(first, first + count, dtype=np.uint8)[:, None], 1024, 1)
    blue = np.tile(np.arange(32, dtype=np.uint8), (count, 32))
    return np.concatenate([red, np.full((count, 1024), 10, np.uint8), blue], 1)


def write_cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "cifar-10-batches-py"
    train = [
        [f"data_batch_{i}", write_batch(folder / f"data_batch_{i}", {"data": planes(4 * i, 4), "labels": [i, 0, 9, 1]})]
        for i in range(1, 6)
    ]
    test = [["test_batch", write_batch(folder / "test_batch", {"data": planes(100, 3), "labels": [7, 8, 9]})]]
    md5 = write_batch(folder / "batches.meta", {"label_names": TEN})
    monkeypatch.setattr(datasets.CIFAR10, "train_list", train)
    monkeypatch.setattr(datasets.CIFAR10, "test_list", test)
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**datasets.CIFAR10.meta, "md5": md5})


def write_cifar100(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "cifar-100-python"
    for name, count in (("train", 200), ("test", 100)):
        labels = [i % 100 for i in range(count)]
        md5 = write_batch(folder / name, {"data": planes(0, count), "fine_labels": labels, "coarse_labels": labels})
        monkeypatch.setattr(datasets.CIFAR100, f"{name}_list", [[name, md5]])
    md5 = write_batch(folder / "meta", {"fine_label_names": HUNDRED})
    monkeypatch.setattr(datasets.CIFAR100, "meta", {**datasets.CIFAR100.meta, "md5": md5})


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
