"""The nearest places of every word against a plain loop, by hand, and whatever the shards."""

import numpy as np
import torch

from bownet.words.patches import Places, cut_patch, places_of
from bownet.words.vocabulary_file import Vocabulary


def made(images: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, Vocabulary]:
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(images, 4, 6, 5, generator=generator)
    vocabulary = Vocabulary(torch.randn(7, 4, generator=generator), "teacher", "block3")
    return maps, vocabulary.assign(maps), vocabulary


def by_a_loop(maps: torch.Tensor, words: torch.Tensor, vocabulary: Vocabulary, most: int) -> list[tuple[int, ...]]:
    found = []
    for word in range(vocabulary.size):
        best = {}
        for i in range(len(maps)):
            for y in range(1, maps.shape[2] - 1):
                for x in range(1, maps.shape[3] - 1):
                    if words[i, y, x] == word:
                        d = float((maps[i, :, y, x] - vocabulary.centroids_KC[word]).square().sum())
                        best[i] = min(best.get(i, (np.inf, 0, 0)), (d, y, x))
        nearest = sorted((d, i, y, x) for i, (d, y, x) in best.items())[:most]
        found += [(word, i, y, x) for d, i, y, x in nearest]
    return found


def as_list(places: Places) -> list[tuple[int, ...]]:
    columns = (places.word, places.image, places.row, places.column)
    return [tuple(map(int, place)) for place in zip(*columns, strict=True)]


def test_against_a_plain_loop() -> None:
    maps, words, vocabulary = made(12)
    found = places_of(maps, words, vocabulary, first=0, most=4)
    assert as_list(found) == by_a_loop(maps, words, vocabulary, most=4)
    assert as_list(found.of(3)) == [place for place in as_list(found) if place[0] == 3]


def test_shards_do_not_matter() -> None:
    maps, words, vocabulary = made(20)
    whole = places_of(maps, words, vocabulary, first=0, most=3)
    parts = [places_of(maps[i : i + 7], words[i : i + 7], vocabulary, first=i, most=3) for i in (0, 7, 14)]
    assert as_list((parts[2] + parts[0] + parts[1]).nearest(3)) == as_list(whole)


def test_one_place_of_an_image_at_most() -> None:
    maps, words, vocabulary = made(5)
    found = places_of(maps, words, vocabulary, first=10, most=16)
    assert len({(place[0], place[1]) for place in as_list(found)}) == len(found)
    assert set(found.image) <= set(range(10, 15))


def test_a_patch_stays_within_its_image() -> None:
    image = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    assert (cut_patch(image, 4, 4, 4) == image[2:6, 2:6]).all()
    assert (cut_patch(image, 0.5, 7.5, 4) == image[:4, 4:]).all()
    assert cut_patch(image, 4, 4, 20).shape == (8, 8, 3)
