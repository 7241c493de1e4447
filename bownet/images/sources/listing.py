"""What every reader gives: a data set as splits of images in a fixed order, each readable in parts by any process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.images.decode import BadImage

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Picture:
    """One image as it lies in its data set."""

    name: str  # stable: its path below the data set's root, or "file.parquet#row"
    content: bytes | NDArray[np.uint8] | BadImage  # an encoded file, pixels [H, W, 3], or why it cannot be read
    annotation: Mapping[str, Any] | None = None  # such as boxes; JSON values


class Part(ABC):
    """Some images of a listing: small and picklable, so that a worker can be sent just what it reads."""

    @abstractmethod
    def read(self) -> Iterator[Picture]:
        """Every image of the part, once, in order; what cannot be read comes as a BadImage, not as an error."""


class Listing(ABC):
    """The images of one split, numbered in an order that depends on the data alone."""

    labels: NDArray[np.int64] | None  # a class number per image; None when there are no single labels

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def part(self, rows: Rows) -> Part:
        """The images of these numbers, in this order."""


@dataclass(frozen=True)
class Source:
    """A data set, opened: nothing but names, labels and sizes has been read."""

    splits: Mapping[str, Listing]  # always `train`; `test` and `novel` (categories kept for few-shot) where there are
    categories: tuple[str, ...]  # names of the classes that labels number; () without labels
    fingerprint: str  # changes with the images and labels, not with the place where they lie
    bytes_per_image: int = 0  # mean size of an encoded file, 0 if pixels are drawn or unpacked
    notes: tuple[str, ...] = ()  # for people: what was left out or assumed
