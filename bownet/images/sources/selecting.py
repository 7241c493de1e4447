"""Which images of a data set are used: an opened source and the settings go in, a smaller source comes out.

The choice depends on the seed and on the order of the images alone. A larger share or a higher limit contains the
smaller one, and every class keeps its part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.images.sources.listing import Listing, Part, Rows, Source
from bownet.images.sources.names import digest

_OF_TRAINING, _OF_TEST, _OF_NOVEL, _HOLD_OUT = range(4)  # streams of random numbers


@dataclass(frozen=True, eq=False)
class Selected(Listing):
    """Some images of a listing."""

    listing: Listing
    rows: Rows
    labels: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, rows: Rows) -> Part:
        return self.listing.part(self.rows[rows])


def chosen(listing: Listing, rows: Rows) -> Selected:
    """These rows of a listing, as a listing."""
    return Selected(listing, rows, None if listing.labels is None else listing.labels[rows])


def select(source: Source, data: Data) -> Source:
    """Hold out test images where there are none, then apply `fraction`, `train`, `test` and `novel_per_class`."""
    splits, notes = dict(source.splits), list(source.notes)
    if "test" not in splits:
        splits["train"], splits["test"] = _hold_out(splits["train"], data)
        notes.append(
            f"data.test_fraction={data.test_fraction:g}: the set has no test images, "
            f"{len(splits['test'])} of its {len(source.splits['train'])} are held out as such"
        )

    def keep(split: str, setting: str, rows: Rows, what: str) -> None:
        listing = splits[split]
        if len(rows) < len(listing):
            splits[split] = chosen(listing, rows)
            notes.append(f"data.{setting}: {len(rows)} of {len(listing)} {what} images are used")

    train = splits["train"]
    share = np.maximum(1, np.round(data.fraction * _class_sizes(train)))
    keep(
        "train",
        f"fraction={data.fraction:g}",
        np.flatnonzero(_rank(train, data.seed, _OF_TRAINING) < share),
        "training",
    )
    if data.train is not None:
        keep("train", f"train={data.train}", _evenly(splits["train"], data.train, data.seed, _OF_TRAINING), "training")
    if data.test is not None:
        keep("test", f"test={data.test}", _evenly(splits["test"], data.test, data.seed, _OF_TEST), "test")
    if data.novel_per_class is not None and "novel" in splits:
        rank = _rank(splits["novel"], data.seed, _OF_NOVEL)
        setting = f"novel_per_class={data.novel_per_class}"
        keep("novel", setting, np.flatnonzero(rank < data.novel_per_class), "novel")

    cut = [
        part
        for s, listing in sorted(splits.items())
        if listing is not source.splits.get(s)
        for part in _rows(s, listing)
    ]
    fingerprint = digest(source.fingerprint, *cut) if cut else source.fingerprint
    return replace(source, splits=splits, notes=tuple(notes), fingerprint=fingerprint)


def _rows(split: str, listing: Listing) -> list[str | Rows]:
    """What was chosen, down to the listing that was read."""
    return [split, listing.rows, *_rows(split, listing.listing)] if isinstance(listing, Selected) else []


def _hold_out(listing: Listing, data: Data) -> tuple[Listing, Listing]:
    count = _class_sizes(listing)
    share = np.clip(np.round(data.test_fraction * count), 1, np.maximum(count - 1, 0))  # a lone image is trained on
    is_test = _rank(listing, data.seed, _HOLD_OUT) < share
    if not is_test.any():
        raise ValueError(f"data.path={data.path}: {len(listing)} images, too few to hold any out as test images")
    return chosen(listing, np.flatnonzero(~is_test)), chosen(listing, np.flatnonzero(is_test))


def _evenly(listing: Listing, count: int, seed: int, stream: int) -> Rows:
    """At most `count` images: one of each class, then a second of each, and so on."""
    return np.sort(np.argsort(_rank(listing, seed, stream), kind="stable")[:count])


def _class_of(listing: Listing) -> NDArray[np.int64]:
    return np.zeros(len(listing), np.int64) if listing.labels is None else listing.labels


def _class_sizes(listing: Listing) -> NDArray[np.int64]:
    """For each image, how many there are of its class."""
    _, index, counts = np.unique(_class_of(listing), return_inverse=True, return_counts=True)
    return counts[index]


def _rank(listing: Listing, seed: int, stream: int) -> NDArray[np.int64]:
    """The place of each image in a random order of its class."""
    label = _class_of(listing)
    draw = np.random.Generator(np.random.Philox(key=[seed, stream])).random(len(label))
    order = np.lexsort((draw, label))
    _, first, index = np.unique(label[order], return_index=True, return_inverse=True)
    rank = np.empty(len(label), np.int64)
    rank[order] = np.arange(len(label)) - first[index]
    return rank
