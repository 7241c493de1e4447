"""CIFAR in its original pickled batches of a few images; torchvision's checksums are set to those of the files."""

import hashlib
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from bownet.images.sources.cifar import NOVEL

TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
HUNDRED = sorted([*NOVEL, *(f"other_{i}" for i in range(80))])


def write_batch(path: Path, content: dict[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))
    return hashlib.md5(path.read_bytes()).hexdigest()


def planes(first: int, count: int) -> np.ndarray:
    """Rows of the batches: 1024 reds, 1024 greens, 1024 blues. Red counts images, green is 10, blue rises by column."""
    red = np.repeat((np.arange(first, first + count) % 256).astype(np.uint8)[:, None], 1024, 1)
    blue = np.tile(np.arange(32, dtype=np.uint8), (count, 32))
    return np.concatenate([red, np.full((count, 1024), 10, np.uint8), blue], 1)


def write_cifar10(
    root: Path, monkeypatch: pytest.MonkeyPatch, test_labels: Sequence[int] = (7, 8, 9), times: int = 1
) -> None:
    """Four images in each batch, or so many times four."""
    folder = root / "cifar-10-batches-py"
    train = [
        [name, write_batch(folder / name, {"data": planes(4 * i, 4 * times), "labels": [i, 0, 9, 1] * times})]
        for i, name in ((i, f"data_batch_{i}") for i in range(1, 6))
    ]
    content = {"data": planes(100, len(test_labels)), "labels": list(test_labels)}
    test = [["test_batch", write_batch(folder / "test_batch", content)]]
    md5 = write_batch(folder / "batches.meta", {"label_names": TEN})
    monkeypatch.setattr(datasets.CIFAR10, "train_list", train)
    monkeypatch.setattr(datasets.CIFAR10, "test_list", test)
    monkeypatch.setattr(datasets.CIFAR10, "meta", {**datasets.CIFAR10.meta, "md5": md5})


def write_cifar100(root: Path, monkeypatch: pytest.MonkeyPatch, train: int = 200, test: int = 100) -> None:
    folder = root / "cifar-100-python"
    for name, count in (("train", train), ("test", test)):
        labels = [i % 100 for i in range(count)]
        md5 = write_batch(folder / name, {"data": planes(0, count), "fine_labels": labels, "coarse_labels": labels})
        monkeypatch.setattr(datasets.CIFAR100, f"{name}_list", [[name, md5]])
    md5 = write_batch(folder / "meta", {"fine_label_names": HUNDRED})
    monkeypatch.setattr(datasets.CIFAR100, "meta", {**datasets.CIFAR100.meta, "md5": md5})
