"""CIFAR-10 and CIFAR-100 in their original archives, which torchvision reads, checks and, when absent, downloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.filesystems import is_local, local_path
from bownet.images.sources.listing import Listing, Part, Picture, Rows, Source
from bownet.images.sources.names import digest
from bownet.images.sources.selecting import chosen

# The test split of CIFAR-FS. The paper does not list its 20 classes; the authors' few-shot code uses these.
NOVEL = (
    *("baby", "bed", "bicycle", "chimpanzee", "fox", "leopard", "man", "pickup_truck", "plain", "poppy"),
    *("rocket", "rose", "snail", "sweet_pepper", "table", "telephone", "wardrobe", "whale", "woman", "worm"),
)


@dataclass(frozen=True, eq=False)
class PixelPart(Part):
    """Some images, as pixels."""

    names: list[str]
    images_NHWC: NDArray[np.uint8]

    def read(self) -> Iterator[Picture]:
        for name, pixels in zip(self.names, self.images_NHWC, strict=True):
            yield Picture(name, pixels)


@dataclass(frozen=True, eq=False)
class PixelListing(Listing):
    """A split that is in memory."""

    split: str
    images_NHWC: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images_NHWC)

    def part(self, rows: Rows) -> PixelPart:
        return PixelPart([f"{self.split}#{i}" for i in rows], self.images_NHWC[rows])


def open_cifar10(data: Data) -> Source:
    """`train` and `test` of 10 classes."""
    splits, categories = _read(data, "CIFAR10", "CIFAR-10")
    return Source(splits, categories, _fingerprint(data.kind, splits))


def open_cifar100(data: Data) -> Source:
    """`train` and `test` of 100 classes, and the test images of 20 of them as `novel`."""
    splits, categories = _read(data, "CIFAR100", "CIFAR-100")
    test = splits["test"]
    novel = chosen(test, np.flatnonzero(np.isin(test.labels, [categories.index(name) for name in NOVEL])))
    notes = (
        "the novel split is the test images of the 20 CIFAR-FS test classes, which are among the training classes",
    )
    return Source({**splits, "novel": novel}, categories, _fingerprint(data.kind, splits), notes=notes)


def _read(data: Data, dataset: str, title: str) -> tuple[dict[str, PixelListing], tuple[str, ...]]:
    from torchvision import datasets  # slow to import, and no other reader needs it

    assert data.path is not None
    if not is_local(data.path):
        raise ValueError(
            f"data.path={data.path}: {title} is read from a local folder; name one, it is downloaded there"
        )
    kind = getattr(datasets, dataset)
    root = Path(local_path(data.path))
    if root.name == kind.base_folder:
        root = root.parent
    if root.is_file():
        raise ValueError(f"data.path={data.path}: is a file; name the folder with {kind.base_folder}")
    try:
        try:
            sets = {split: kind(root, train=split == "train", download=False) for split in ("train", "test")}
        except RuntimeError:  # absent, or not whole
            sets = {split: kind(root, train=split == "train", download=True) for split in ("train", "test")}
    except (OSError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"data.path={data.path}: {title} is not there and cannot be downloaded ({reason}); "
            f"unpack {kind.filename} from {kind.url} there"
        ) from error
    splits = {
        split: PixelListing(split, np.asarray(some.data, np.uint8), np.array(some.targets, np.int64))
        for split, some in sets.items()
    }
    return splits, tuple(sets["train"].classes)


def _fingerprint(kind: str, splits: dict[str, PixelListing]) -> str:
    return digest(kind, *(part for split in splits.values() for part in (split.images_NHWC, split.labels)))
