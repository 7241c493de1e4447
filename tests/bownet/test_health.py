"""Health of a vocabulary: by hand, against scikit-learn, and the same whether shards come together or apart."""

from __future__ import annotations

import json
import math
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

from bownet.words.health import health, word_stats, words_and_labels, words_and_words


def random_words(n: int = 60, k: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.minimum(rng.geometric(0.1, (n, 2, 4, 5)) - 1, k - 1).astype(np.uint16)


def test_by_hand() -> None:
    words = np.array([[[0, 0], [0, 1]], [[0, 2], [0, 2]]], np.uint16)  # 5 of word 0, 1 of 1, 2 of 2, none of 3
    found = health(word_stats(words, 4), inertia=[3.0, 2.0, 2.0])
    assert (found.size, found.images, found.positions, found.used, found.dead) == (4, 2, 8, 3, 1)
    entropy = -(5 / 8 * math.log(5 / 8) + 1 / 8 * math.log(1 / 8) + 2 / 8 * math.log(2 / 8))
    assert found.perplexity == pytest.approx(math.exp(entropy))
    assert found.top_percent_share == 5 / 8  # at least one word
    assert found.curve == ((1, 5 / 8), (2, 2 / 8), (3, 1 / 8), (4, 0.0))
    assert found.words_per_image == {"mean": 2, "min": 2, "median": 2, "max": 2, "positions": 4}
    assert found.inertia == (3.0, 2.0, 2.0)
    assert (found.label_information, found.drift_nmi) == (None, None)
    assert found.warnings == ("1 of 4 words are never used: use a smaller vocabulary or another teacher",)


def test_even_words_are_healthy() -> None:
    found = health(word_stats(np.arange(400).reshape(4, 100) % 200, 200))
    assert found.perplexity == pytest.approx(200)
    assert found.top_percent_share == pytest.approx(0.01)
    assert found.words_per_image["mean"] == 100
    assert found.warnings == ()
    found.require_perplexity(199)
    with pytest.raises(ValueError, match=r"vocabulary.min_perplexity=201: the words have a perplexity of 200.0 \(few"):
        found.require_perplexity(201)


def test_words_per_image_by_hand() -> None:
    words = np.array([[[0, 0, 0]], [[1, 2, 3]], [[1, 1, 3]], [[5, 1, 0]], [[4, 4, 4]]])
    stats = word_stats(words, 6)
    assert stats.images_by_words.tolist() == [0, 2, 1, 2]
    found = health(stats).words_per_image
    assert found == {"mean": 2, "min": 1, "median": 2, "max": 3, "positions": 3}


@pytest.mark.parametrize(
    ("counts", "warning"),
    [
        ([30, 17, 15] + [1] * 38, "62% of positions are 3 words: the teacher has collapsed"),
        ([80] + [1] * 20, "80% of positions are 1 word: the teacher has collapsed"),
        ([1000] * 8 + [1] * 99, "perplexity 8.8 of 107 words: few words do most of the work"),
        ([1] * 16 + [0] * 16, "16 of 32 words are never used"),
    ],
)
def test_warnings_in_plain_words(counts: list[int], warning: str) -> None:
    words = np.repeat(np.arange(len(counts)), counts)[None]
    found = health(word_stats(words, len(counts)))
    assert found.warnings[0].startswith(warning)
    with pytest.raises(ValueError, match=warning.split(":")[0]):
        found.require_perplexity(1000)


def test_warnings_about_images_and_iterations() -> None:
    words = np.repeat(np.arange(30), 4).reshape(30, 4)  # each image is one word
    found = health(word_stats(words, 30), inertia=[5.0, 4.0, 3.8])
    assert found.warnings == (
        "half of the images are one single word: their bags say little about what is where",
        "inertia still fell by 5.0% in the last iteration: raise vocabulary.iterations",
    )


def test_labels_equal_scikit_learn() -> None:
    words = random_words()
    labels = np.arange(60) % 3
    words[labels == 1] //= 4  # so that words tell something
    joint = words_and_labels(words, labels, 3)
    flat, repeated = words.ravel(), np.repeat(labels, 40)
    assert joint.mutual_information() == pytest.approx(mutual_info_score(flat, repeated))
    assert joint.nmi() == pytest.approx(normalized_mutual_info_score(flat, repeated))
    found = health(word_stats(words, 40), labels=joint)
    assert found.label_information == joint.mutual_information() > 0.05
    assert found.label_entropy == pytest.approx(math.log(3))


def test_labels_by_hand() -> None:
    joint = words_and_labels([[0, 0], [0, 1]], [0, 1], 2)  # word 0: twice label 0, once label 1; word 1: once label 1
    expected = math.log(2) - 3 / 4 * (math.log(3) - 2 / 3 * math.log(2))
    assert joint.mutual_information() == pytest.approx(expected)


def test_drift_equals_scikit_learn() -> None:
    before, other = random_words(), random_words(seed=1)
    after = np.where(np.random.default_rng(2).random(before.shape) < 0.7, (before + 7) % 40, other)
    assert words_and_words(before, after, 40).nmi() == pytest.approx(
        normalized_mutual_info_score(before.ravel(), after.ravel())
    )
    assert words_and_words(before, (before + 7) % 40, 40).nmi() == pytest.approx(1)  # other names, same partition
    assert words_and_words(before, np.zeros_like(before), 40).nmi() == 0
    assert words_and_words([[1, 1]], [[2, 2]], 3).nmi() == 1


def test_shards_add_up_and_the_result_is_json() -> None:
    words, labels, after = random_words(), np.arange(60) % 5, random_words(seed=1)
    parts = [slice(0, 1), slice(1, 30), slice(30, 60)]
    whole = health(
        word_stats(words, 40),
        labels=words_and_labels(words, labels, 5),
        drift=words_and_words(words, after, 40),
        inertia=[1.0],
    )
    summed = health(
        reduce(add, (word_stats(words[p], 40) for p in parts)),
        labels=reduce(add, (words_and_labels(words[p], labels[p], 5) for p in parts)),
        drift=reduce(add, (words_and_words(words[p], after[p], 40) for p in parts)),
        inertia=[1.0],
    )
    assert summed == whole
    stored = json.loads(json.dumps(whole.to_json()))
    assert stored["perplexity"] == whole.perplexity
    assert stored["words_per_image"] == whole.words_per_image
    assert whole.metrics().keys() == {
        "used",
        "dead",
        "perplexity",
        "top_percent_share",
        "words_per_image",
        "inertia",
        "label_information",
        "drift_nmi",
    }
    assert "drift_nmi" not in health(word_stats(words, 40)).metrics()


def test_curve_is_short_and_falls() -> None:
    words = np.random.default_rng(0).zipf(1.3, 100_000).clip(max=20_000)[None] - 1
    curve = health(word_stats(words, 20_000)).curve
    assert len(curve) <= 64
    assert (curve[0][0], curve[-1][0]) == (1, 20_000)
    assert all(a[1] >= b[1] for a, b in pairwise(curve))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"word 9: the vocabulary has 9 words, 0..8"):
        word_stats(np.array([[3, 9]]), 9)
    with pytest.raises(ValueError, match=r"drift needs the same positions"):
        words_and_words(np.zeros((2, 3, 3)), np.zeros((2, 2, 2)), 4)
    with pytest.raises(ValueError, match=r"values 0..7: expected 0..4"):
        words_and_labels([[0], [1]], [0, 7], 5)
    with pytest.raises(ValueError, match=r"words: there are none"):
        health(word_stats(np.zeros((0, 4), np.uint16), 9))
