"""Is a vocabulary any good? From word maps, shard by shard, to numbers and warnings in plain words.

Statistics of shards add up; labels only inform the reader and are never used for training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts = NDArray[np.int64]

_CURVE_POINTS = 64


@dataclass(frozen=True)
class WordStats:
    """How often each word occurs, and how many different words images have."""

    counts_K: Counts
    images_by_words: Counts  # [U + 1]: number of images with 0, 1, ..., U different words

    def __add__(self, other: WordStats) -> WordStats:
        return WordStats(self.counts_K + other.counts_K, self.images_by_words + other.images_by_words)


def word_stats(words: ArrayLike, num_words: int) -> WordStats:
    """Statistics of the word maps of a shard, [N, ...] with equally many positions U per image."""
    words_NU = _flat(words)
    if words_NU.size and words_NU.max() >= num_words:
        raise ValueError(f"word {words_NU.max()}: the vocabulary has {num_words} words, 0..{num_words - 1}")
    ordered = np.sort(words_NU, axis=1)
    distinct_N = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    return WordStats(
        np.bincount(words_NU.ravel(), minlength=num_words).astype(np.int64),
        np.bincount(distinct_N, minlength=words_NU.shape[1] + 1).astype(np.int64),
    )


@dataclass(frozen=True)
class Joint:
    """How often value a of one labelling meets value b of another; only pairs that occur are kept."""

    codes: Counts  # a * columns + b, rising
    counts: Counts
    columns: int

    def __add__(self, other: Joint) -> Joint:
        assert self.columns == other.columns
        codes, place = np.unique(np.concatenate([self.codes, other.codes]), return_inverse=True)
        counts = np.zeros(len(codes), np.int64)
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        return Joint(codes, counts, self.columns)

    def entropies(self) -> tuple[float, float, float]:
        """Of a, of b and of the pair, in nats."""
        rows = np.bincount(self.codes // self.columns, self.counts)
        columns = np.bincount(self.codes % self.columns, self.counts)
        return _entropy(rows), _entropy(columns), _entropy(self.counts)

    def mutual_information(self) -> float:
        """In nats."""
        a, b, both = self.entropies()
        return max(0.0, a + b - both)

    def nmi(self) -> float:
        """Mutual information over the mean of the two entropies: 0 is independent, 1 the same but for names."""
        a, b, _ = self.entropies()
        return min(1.0, self.mutual_information() / ((a + b) / 2)) if a + b else 1.0


def words_and_labels(words: ArrayLike, labels_N: ArrayLike, num_classes: int) -> Joint:
    """Words of a shard, each with the label of its image."""
    words_NU = _flat(words)
    return _joint(words_NU, np.broadcast_to(np.asarray(labels_N)[:, None], words_NU.shape), num_classes)


def words_and_words(before: ArrayLike, after: ArrayLike, num_words: int) -> Joint:
    """Words of the same positions in two rounds; `num_words` is the size of the second vocabulary."""
    a, b = _flat(before), _flat(after)
    if a.shape != b.shape:
        raise ValueError(f"word maps {np.shape(before)} and {np.shape(after)}: drift needs the same positions")
    return _joint(a, b, num_words)


@dataclass(frozen=True)
class Health:
    """A vocabulary's health, as it is stored in JSON."""

    size: int
    images: int
    positions: int
    used: int
    dead: int
    perplexity: float
    top_percent_share: float  # of positions, held by the most frequent 1% of the words
    curve: tuple[tuple[int, float], ...]  # (rank, share of positions) of words by falling frequency
    words_per_image: dict[str, float]  # mean, min, median, max
    inertia: tuple[float, ...]  # per iteration of k-means
    label_information: float | None  # nats that a word tells about the label of its image
    label_entropy: float | None  # nats that could be told
    drift_nmi: float | None  # with the words of the round before: 1 is the same partition
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def metrics(self) -> dict[str, float]:
        """The single numbers, for the tracking server."""
        values = {
            "used": self.used,
            "dead": self.dead,
            "perplexity": self.perplexity,
            "top_percent_share": self.top_percent_share,
            "words_per_image": self.words_per_image["mean"],
            "inertia": self.inertia[-1] if self.inertia else None,
            "label_information": self.label_information,
            "drift_nmi": self.drift_nmi,
        }
        return {name: float(value) for name, value in values.items() if value is not None}

    def require_perplexity(self, least: float) -> None:
        """Stop here when so few words are in use that a student would learn little."""
        if self.perplexity < least:
            why = "; ".join(self.warnings) or "few words are in use"
            raise ValueError(
                f"vocabulary.min_perplexity={least:g}: the words have a perplexity of {self.perplexity:.1f} ({why}); "
                "use another teacher or tap, or a lower limit"
            )


def health(
    stats: WordStats, *, inertia: Sequence[float] = (), labels: Joint | None = None, drift: Joint | None = None
) -> Health:
    """All that is known of a vocabulary before a student is trained on it."""
    counts = np.sort(stats.counts_K)[::-1]
    k, positions = len(counts), int(counts.sum())
    if not positions:
        raise ValueError("words: there are none, so the vocabulary has no health")
    share = counts / positions
    used = int((counts > 0).sum())
    ranks = np.unique(np.geomspace(1, k, _CURVE_POINTS).round().astype(int))
    per_image = _distribution(stats.images_by_words)
    perplexity = math.exp(_entropy(counts))
    return Health(
        size=k,
        images=int(stats.images_by_words.sum()),
        positions=positions,
        used=used,
        dead=k - used,
        perplexity=perplexity,
        top_percent_share=float(share[: max(1, round(k / 100))].sum()),
        curve=tuple((int(r), float(share[r - 1])) for r in ranks),
        words_per_image=per_image,
        inertia=tuple(map(float, inertia)),
        label_information=labels.mutual_information() if labels else None,
        label_entropy=labels.entropies()[1] if labels else None,
        drift_nmi=drift.nmi() if drift else None,
        warnings=tuple(_warnings(share, used, perplexity, per_image, inertia)),
    )


def _warnings(
    share: NDArray[np.float64], used: int, perplexity: float, per_image: dict[str, float], inertia: Sequence[float]
) -> list[str]:
    k = len(share)
    found = []
    few = next(m for m in (1, 2, 3) if m == 3 or share[:m].sum() > 0.5)
    held = float(share[:few].sum())
    if held > 0.5 and k >= 16:
        which = "1 word" if few == 1 else f"{few} words"
        found.append(f"{held:.0%} of positions are {which}: the teacher has collapsed")
    elif perplexity < k / 10:
        found.append(f"perplexity {perplexity:.1f} of {k} words: few words do most of the work")
    if k - used > k / 10:
        found.append(f"{k - used} of {k} words are never used: use a smaller vocabulary or another teacher")
    if per_image["median"] < 2 < per_image["positions"]:
        found.append("half of the images are one single word: their bags say little about what is where")
    if len(inertia) > 2 and inertia[-2] - inertia[-1] > 0.01 * inertia[-2]:
        fall = 1 - inertia[-1] / inertia[-2]
        found.append(f"inertia still fell by {fall:.1%} in the last iteration: raise vocabulary.iterations")
    return found


def _flat(words: ArrayLike) -> NDArray[Any]:
    array = np.asarray(words)
    return array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)


def _joint(a: NDArray[Any], b: NDArray[Any], columns: int) -> Joint:
    if b.size and not (b.min() >= 0 and b.max() < columns):
        raise ValueError(f"values {b.min()}..{b.max()}: expected 0..{columns - 1}")
    codes, counts = np.unique(a.astype(np.int64) * columns + b, return_counts=True)
    return Joint(codes, counts.astype(np.int64), columns)


def _entropy(counts: NDArray[Any]) -> float:
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def _distribution(images_by_words: Counts) -> dict[str, float]:
    present = np.flatnonzero(images_by_words)
    cumulative = images_by_words.cumsum()
    return {
        "mean": float((np.arange(len(images_by_words)) * images_by_words).sum() / cumulative[-1]),
        "min": float(present[0]),
        "median": float(np.searchsorted(cumulative, cumulative[-1] / 2)),
        "max": float(present[-1]),
        "positions": float(len(images_by_words) - 1),
    }
