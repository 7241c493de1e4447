"""Which images are used: shares and limits, per class, from a seed."""

from dataclasses import replace

import numpy as np
import pytest

from bownet.config import Data
from bownet.images.sources.cifar import PixelListing
from bownet.images.sources.listing import Source
from bownet.images.sources.selecting import chosen, select


def listing(split: str, counts: list[int]) -> PixelListing:
    """`counts[c]` images of class c; the pixel of an image is its number."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return PixelListing(split, np.arange(len(labels), dtype=np.uint8)[:, None, None, None], labels)


def source(**counts: list[int]) -> Source:
    return Source({s: listing(s, c) for s, c in counts.items()}, ("a", "b", "c"), "f00d", notes=("before",))


def settings(**values: object) -> Data:
    return Data(kind="folder", path="x", **values)


def rows(listing: object) -> list[int]:
    return [int(p.content[0, 0, 0]) for p in listing.part(np.arange(len(listing))).read()]


def per_class(listing: object) -> list[int]:
    return np.bincount(listing.labels, minlength=3).tolist()


def test_nothing_is_touched_without_a_setting() -> None:
    before = source(train=[5, 5, 5], test=[2, 2, 2], novel=[3, 3, 3])
    assert select(before, settings()) == before


def test_a_share_of_every_class() -> None:
    after = select(source(train=[10, 20, 1], test=[2, 2, 2]), settings(fraction=0.2))
    assert per_class(after.splits["train"]) == [2, 4, 1]
    assert per_class(after.splits["test"]) == [2, 2, 2]
    assert after.notes == ("before", "data.fraction=0.2: 7 of 31 training images are used")
    assert after.fingerprint != "f00d"


@pytest.mark.parametrize(("limit", "expected"), [(6, [2, 2, 2]), (7, [3, 2, 2]), (12, [5, 5, 2]), (99, [10, 10, 2])])
def test_a_limit_is_spread_evenly(limit: int, expected: list[int]) -> None:
    after = select(source(train=[10, 10, 2], test=[1, 1, 1]), settings(train=limit))
    assert per_class(after.splits["train"]) == expected
    assert (f"data.train={limit}: {limit} of 22 training images are used" in after.notes) == (limit < 22)


def test_limits_of_test_and_novel() -> None:
    after = select(source(train=[3, 3, 3], test=[4, 4, 4], novel=[5, 5, 5]), settings(test=6, novel_per_class=2))
    assert per_class(after.splits["test"]) == [2, 2, 2]
    assert per_class(after.splits["novel"]) == [2, 2, 2]
    assert after.notes[1:] == (
        "data.test=6: 6 of 12 test images are used",
        "data.novel_per_class=2: 6 of 15 novel images are used",
    )


def test_test_images_are_held_out_where_there_are_none() -> None:
    before = source(train=[10, 5, 1])
    after = select(before, settings(test_fraction=0.2))
    train, test = after.splits["train"], after.splits["test"]
    assert (per_class(train), per_class(test)) == ([8, 4, 1], [2, 1, 0])
    assert sorted(rows(train) + rows(test)) == list(range(16))
    assert train.labels.tolist() == [before.splits["train"].labels[i] for i in rows(train)]
    assert after.notes[1] == "data.test_fraction=0.2: the set has no test images, 3 of its 16 are held out as such"


def test_the_choice_is_fixed_by_the_seed_keeps_the_order_and_grows() -> None:
    def chosen_by(**values: object) -> list[int]:
        return rows(select(source(train=[50, 50, 50], test=[1, 1, 1]), settings(**values)).splits["train"])

    assert chosen_by(train=6) == [0, 43, 54, 66, 102, 111]  # as first drawn: results depend on it
    assert chosen_by(train=6) != chosen_by(train=6, seed=1)
    assert chosen_by(train=60) == sorted(chosen_by(train=60))
    assert set(chosen_by(train=6)) < set(chosen_by(train=60)) < set(chosen_by(train=61))
    assert set(chosen_by(fraction=0.1)) < set(chosen_by(fraction=0.2))


def test_images_without_labels() -> None:
    before = Source({"train": replace(listing("train", [100]), labels=None)}, (), "f00d")
    after = select(before, settings(train=30, test=5))
    assert {s: (len(x), x.labels) for s, x in after.splits.items()} == {"train": (30, None), "test": (5, None)}


def test_the_fingerprint_tells_the_choice() -> None:
    def fingerprint(**values: object) -> str:
        return select(source(train=[10, 10, 10]), settings(**values)).fingerprint

    assert fingerprint() == fingerprint()
    assert (
        len({fingerprint(), fingerprint(train=5), fingerprint(seed=1), fingerprint(test=2), fingerprint(test=3)}) == 5
    )


def test_a_choice_of_a_choice() -> None:
    twice = chosen(chosen(listing("train", [5, 5]), np.array([1, 3, 6, 8])), np.array([3, 0]))
    assert (rows(twice), twice.labels.tolist()) == ([8, 1], [1, 0])
