"""The embedded set: the same pictures as ever, whichever rows are asked for."""

import pickle

import numpy as np

from bownet.config import Data
from bownet.images import scenes
from bownet.images.sources import open_source


def test_sizes_and_categories() -> None:
    source = open_source(Data())
    assert {s: len(x) for s, x in source.splits.items()} == {"train": 4000, "test": 1200, "novel": 800}
    assert source.categories == scenes.CATEGORIES
    assert set(source.splits["novel"].labels) == set(scenes.NOVEL)
    assert set(source.splits["train"].labels) == set(source.splits["test"].labels) == set(scenes.BASE)
    assert source.notes == ()


def test_rows_give_the_same_pictures_in_any_part() -> None:
    data = Data(train=100, test=10, novel_per_class=2, seed=3, image_size=16)
    source = open_source(data)
    for split, seed in {"train": 48, "test": 52, "novel": 56}.items():
        listing = source.splits[split]
        whole = scenes.draw_labelled(listing.labels, 16, seed)
        rows = np.array([4, 5, 6, 2, 9, 9, 0])
        part = pickle.loads(pickle.dumps(listing.part(rows)))
        pictures = list(part.read())
        assert [p.name for p in pictures] == [f"{split}#{i}" for i in rows]
        np.testing.assert_array_equal(np.stack([p.content for p in pictures]), whole[rows])
    everything = list(source.splits["train"].part(np.arange(100)).read())
    np.testing.assert_array_equal(
        np.stack([p.content for p in everything]), scenes.draw_labelled(source.splits["train"].labels, 16, 48)
    )


def test_the_fingerprint_follows_what_is_drawn() -> None:
    small = {"train": 50, "test": 10}
    prints = [
        open_source(Data(**small, **more)).fingerprint
        for more in ({}, {"seed": 1}, {"image_size": 48}, {"novel_per_class": 7}, {"fraction": 0.5})
    ]
    assert len(set(prints)) == 5
    assert open_source(Data(**small, shard_size=7)).fingerprint == prints[0]


def test_a_share_of_the_scenes() -> None:
    assert len(open_source(Data(train=120, fraction=0.5)).splits["train"]) == 60
