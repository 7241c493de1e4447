"""k-means: equations 1 and 2 against brute force, scikit-learn and numbers by hand."""

from __future__ import annotations

from functools import reduce
from operator import add

import pytest
import torch
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from bownet.words.kmeans import (
    ArraySource,
    Sums,
    assign_and_sum,
    kmeans,
    nearest,
    plus_plus,
    sample_rows,
    split_empty,
)


def blobs(n: int, d: int, centres: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    generator = Generator().manual_seed(seed)
    centre = 4 * torch.randn(centres, d, generator=generator)
    return centre[torch.arange(n) % centres] + spread * torch.randn(n, d, generator=generator)


def brute_force(x_ND: Tensor, centroids_KD: Tensor) -> tuple[list[int], list[float]]:
    index, distance = [], []
    for x in x_ND.tolist():
        squares = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in centroids_KD.tolist()]
        distance.append(min(squares))
        index.append(squares.index(distance[-1]))
    return index, distance


class Parts:
    """The vectors in several pieces, whose sums are added up."""

    def __init__(self, x_ND: Tensor, pieces: list[int]) -> None:
        self.x_ND = x_ND
        self.parts = [ArraySource(part) for part in x_ND.split(pieces)]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def sample(self, n: int, seed: int) -> Tensor:
        return torch.cat([p.x_ND for p in self.parts])[sample_rows(len(self), n, seed)]

    def assign(self, centroids_KD: Tensor) -> Sums:
        return reduce(add, (part.assign(centroids_KD) for part in self.parts))


def test_nearest_equals_brute_force() -> None:
    x, centroids = blobs(300, 5, 4), blobs(17, 5, 17, seed=1)
    index, distance = nearest(x, centroids)
    expected_index, expected_distance = brute_force(x, centroids)
    assert index.tolist() == expected_index
    assert distance.tolist() == pytest.approx(expected_distance, rel=1e-4, abs=1e-4)


def test_nearest_over_several_chunks() -> None:
    x, centroids = blobs(2500, 3, 4), blobs(9, 3, 9, seed=1)  # chunks of 1024, the last one short
    index, distance = nearest(x, centroids)
    squares_NK = torch.cdist(x.double(), centroids.double()).square()
    assert torch.equal(index, squares_NK.argmin(1))
    torch.testing.assert_close(distance.double(), squares_NK.amin(1), rtol=1e-4, atol=1e-4)


def test_sums_by_hand() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [10.0, 10.0], [10.0, 12.0]])
    sums = assign_and_sum(x, torch.tensor([[0.0, 0.0], [10.0, 10.0], [99.0, 99.0]]))
    assert sums.counts_K.tolist() == [2, 2, 0]
    assert sums.sums_KD.tolist() == [[1.0, 0.0], [20.0, 22.0], [0.0, 0.0]]
    assert sums.sums_KD.dtype == torch.float64
    assert sums.inertia == pytest.approx(1 + 4)
    twice = sums + sums
    assert twice.counts_K.tolist() == [4, 4, 0]
    assert twice.inertia == pytest.approx(10)


@pytest.mark.parametrize("init", ["kmeans++", "random"])
@pytest.mark.parametrize("seed", range(4))
def test_one_dimension_by_hand(init: str, seed: int) -> None:
    found = kmeans(ArraySource(torch.tensor([[0.0], [10.0], [1.0], [9.0]])), 2, seed=seed, init=init)
    order = found.centroids_KD[:, 0].argsort()
    assert found.centroids_KD[order, 0].tolist() == [0.5, 9.5]
    assert found.counts_K.tolist() == [2, 2]
    assert found.inertia[-1] == pytest.approx(0.25)
    assert found.splits == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_inertia_equals_scikit_learn_from_the_same_start(seed: int) -> None:
    x, k = blobs(3000, 8, 12, seed=seed, spread=2.0), 20
    source = ArraySource(x)
    found = kmeans(source, k, seed=seed, iterations=300, tolerance=0)
    start = plus_plus(source.sample(min(len(x), 32 * k), seed), k, seed)
    theirs = KMeans(k, init=start.numpy(), n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(x.numpy())
    assert found.splits == 0
    assert found.inertia[-1] == pytest.approx(theirs.inertia_ / len(x), rel=1e-3)
    # Equation 2 itself, of the centroids that were returned.
    assert found.inertia[-1] == pytest.approx(sum(brute_force(x, found.centroids_KD)[1]) / len(x), rel=1e-4)
    assert torch.equal(found.counts_K, torch.bincount(nearest(x, found.centroids_KD)[0], minlength=k))


def test_inertia_never_rises_and_the_loop_ends_when_it_stands_still() -> None:
    x = blobs(2000, 4, 6, spread=3.0)
    told: list[tuple[int, float]] = []
    found = kmeans(ArraySource(x), 25, seed=0, iterations=200, on_iteration=lambda i, v: told.append((i, v)))
    assert found.splits == 0
    assert all(b <= a * (1 + 1e-6) for a, b in zip(found.inertia, found.inertia[1:], strict=False))
    assert found.inertia[-1] < 0.9 * found.inertia[0]
    assert 2 < len(told) < 200
    assert [i for i, _ in told] == list(range(len(told)))
    assert tuple(v for _, v in told) == found.inertia[:-1]


def test_iterations_are_a_limit() -> None:
    found = kmeans(ArraySource(blobs(2000, 4, 6, spread=3.0)), 25, seed=0, iterations=3, tolerance=0)
    assert len(found.inertia) == 4  # three rounds, and the final assignment


def test_as_many_words_as_vectors() -> None:
    x = blobs(40, 3, 5)
    found = kmeans(ArraySource(x), 40, seed=0)
    assert found.counts_K.tolist() == [1] * 40
    assert found.inertia[-1] == pytest.approx(0, abs=1e-4)
    assert sorted(found.centroids_KD.tolist()) == sorted(x.tolist())


def test_more_words_than_vectors_is_an_error_with_a_remedy() -> None:
    message = "vocabulary.size=5: there are only 3 feature vectors, use a smaller vocabulary or more images"
    with pytest.raises(ValueError, match=message):
        kmeans(ArraySource(torch.rand(3, 2)), 5, seed=0)


@pytest.mark.parametrize("init", ["kmeans++", "random"])
def test_fewer_distinct_vectors_than_words(init: str) -> None:
    distinct = torch.tensor([[1.0, 1.0], [5.0, 1.0], [3.0, 8.0]])
    x = distinct.repeat(20, 1)
    found = kmeans(ArraySource(x), 6, seed=0, init=init, iterations=20)
    assert torch.isfinite(found.centroids_KD).all()
    assert int(found.counts_K.sum()) == 60
    assert found.inertia[-1] < 1e-3  # a split moves a centroid by a thousandth of its value
    assert found.splits > 0


def test_start_has_distinct_rows_and_favours_distant_ones() -> None:
    x = torch.cat([torch.zeros(500, 2), torch.tensor([[100.0, 0.0], [0.0, 100.0]])])
    for seed in range(5):
        start = plus_plus(x, 3, seed)
        assert sorted(start.tolist()) == [[0.0, 0.0], [0.0, 100.0], [100.0, 0.0]]
    assert torch.equal(plus_plus(torch.ones(4, 2), 4, 0), torch.ones(4, 2))


def test_start_is_drawn_in_proportion_to_the_squared_distance() -> None:
    # From 0 the others are 1 and 9 away in squared distance; from 1: 1 and 4; from 3: 9 and 4.
    x = torch.tensor([[0.0], [1.0], [3.0]])
    pairs = [tuple(plus_plus(x, 2, seed)[:, 0].tolist()) for seed in range(3000)]
    expected = {(0, 1): 1 / 10, (0, 3): 9 / 10, (1, 0): 1 / 5, (1, 3): 4 / 5, (3, 0): 9 / 13, (3, 1): 4 / 13}
    for (a, b), share in expected.items():
        assert pairs.count((a, b)) / len(pairs) == pytest.approx(share / 3, abs=0.035), (a, b)


def test_empty_clusters_are_split_off_the_largest_by_hand() -> None:
    centroids = torch.tensor([[1024.0, 1024.0], [7.0, 7.0], [3.0, 3.0]])
    counts = torch.tensor([9, 0, 2])
    assert split_empty(centroids, counts) == 1
    assert centroids.tolist() == [[1023.0, 1025.0], [1025.0, 1023.0], [3.0, 3.0]]
    assert counts.tolist() == [9, 0, 2]
    # Two empty ones: the second comes from the largest after the first split, 5 of 9.
    centroids = torch.tensor([[1.0], [2.0], [0.0], [0.0]])
    assert split_empty(centroids, torch.tensor([9, 4, 0, 0])) == 2
    assert centroids[:, 0].tolist() == pytest.approx(
        [(1 - 1 / 1024) ** 2, 2, 1 + 1 / 1024, (1 - 1 / 1024) * 1025 / 1024]
    )
    assert split_empty(centroids, torch.tensor([1, 1, 1, 1])) == 0


class BadStart(ArraySource):
    """All first centroids are the same vector, so that all but one are empty."""

    def sample(self, n: int, seed: int) -> Tensor:
        return self.x_ND[:1].repeat(n, 1)


def test_no_word_stays_empty_after_a_bad_start() -> None:
    x = blobs(1000, 4, 8) + 20
    found = kmeans(BadStart(x), 8, seed=0, init="random", iterations=60)
    assert found.splits >= 7
    assert found.counts_K.min() > 0
    assert found.inertia[-1] < 0.2 * found.inertia[0]


def test_seed_decides() -> None:
    x = blobs(1000, 4, 6, spread=3.0)
    a, b, c = (kmeans(ArraySource(x), 15, seed=s) for s in (1, 1, 2))
    assert torch.equal(a.centroids_KD, b.centroids_KD)
    assert a.inertia == b.inertia
    assert not torch.equal(a.centroids_KD, c.centroids_KD)


@pytest.mark.parametrize("pieces", [[3000], [1, 1500, 1499], [700] * 4 + [200], [1024, 1976]])
def test_result_does_not_depend_on_how_the_vectors_are_split(pieces: list[int]) -> None:
    x = blobs(3000, 8, 10, spread=2.0)
    whole = kmeans(ArraySource(x), 16, seed=3)
    parts = kmeans(Parts(x, pieces), 16, seed=3)
    torch.testing.assert_close(parts.centroids_KD, whole.centroids_KD, rtol=1e-6, atol=1e-6)
    assert torch.equal(nearest(x, parts.centroids_KD)[0], nearest(x, whole.centroids_KD)[0])
    assert torch.equal(parts.counts_K, whole.counts_K)
    assert parts.inertia == pytest.approx(whole.inertia, rel=1e-6)


def test_input_is_left_alone() -> None:
    x = blobs(60, 3, 4)
    before = x.clone()
    kmeans(ArraySource(x), 60, seed=0, init="random", iterations=5)
    assert torch.equal(x, before)


def test_sample_rows_are_distinct_and_rising() -> None:
    rows = sample_rows(100, 30, seed=0)
    assert len(rows) == 30
    assert (rows.diff() > 0).all()
    assert torch.equal(rows, sample_rows(100, 30, seed=0))
    assert not torch.equal(rows, sample_rows(100, 30, seed=1))
    assert sample_rows(5, 9, seed=0).tolist() == [0, 1, 2, 3, 4]
