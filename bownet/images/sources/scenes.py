"""The embedded set: settings go in, pictures come out that `bownet/images/scenes.py` draws; nothing is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.images import scenes
from bownet.images.sources.listing import Listing, Part, Picture, Rows, Source
from bownet.images.sources.names import digest

SPLITS = ("train", "test", "novel")
TRAIN, TEST, NOVEL_PER_CLASS = 4000, 1200, 100  # how many there are unless the settings say
_AT_ONCE = 64  # pictures drawn together


@dataclass(frozen=True, eq=False)
class ScenePart(Part):
    """Some pictures of a split: their numbers and categories."""

    split: str
    size: int
    seed: int
    rows: Rows
    category: NDArray[np.int64]

    def read(self) -> Iterator[Picture]:
        breaks = np.flatnonzero(np.diff(self.rows) != 1) + 1
        for run in np.split(np.arange(len(self.rows)), breaks):  # numbers that follow each other are drawn together
            for start in range(0, len(run), _AT_ONCE):
                some = run[start : start + _AT_ONCE]
                first = int(self.rows[some[0]])
                drawn = scenes.draw_labelled(self.category[some], self.size, self.seed, first)
                for i, pixels in enumerate(drawn):
                    yield Picture(f"{self.split}#{first + i}", pixels)


@dataclass(frozen=True, eq=False)
class SceneListing(Listing):
    """All pictures of a split."""

    split: str
    size: int
    seed: int
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: Rows) -> ScenePart:
        return ScenePart(self.split, self.size, self.seed, np.asarray(rows), self.labels[rows])


def open_scenes(data: Data) -> Source:
    """`train` and `test` of the base categories, `novel` of the ones that are kept for few-shot episodes."""
    counts = {
        "train": data.train or TRAIN,
        "test": data.test or TEST,
        "novel": (data.novel_per_class or NOVEL_PER_CLASS) * len(scenes.NOVEL),
    }
    splits = {
        split: SceneListing(
            split,
            data.image_size,
            seed=data.seed * 16 + 4 * SPLITS.index(split),  # each split has random numbers of its own
            labels=scenes.labels(count, scenes.NOVEL if split == "novel" else scenes.BASE),
        )
        for split, count in counts.items()
    }
    fingerprint = digest("scenes", [data.image_size, data.seed, *counts.values()])
    return Source(splits, scenes.CATEGORIES, fingerprint)
