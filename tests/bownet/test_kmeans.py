"""k-means: equations 1 and 2 against brute force, scikit-learn, faiss and numbers by hand; the same for any split."""

from __future__ import annotations

import io
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor
from vectors import blobs, brute_force

from bownet.words.grid import Grid, grid_for, survey
from bownet.words.kmeans import ArraySource, Clusters, State, cluster, kmeans, plus_plus, sample_rows, split_empty
from bownet.words.nearest import Sums, nearest_index


class Parts:
    """The vectors in several pieces, each in memory of its own, whose sums are added up."""

    def __init__(self, x_ND: Tensor, pieces: list[int], grid: Grid | None) -> None:
        self.parts = [ArraySource(part.clone(), grid) for part in x_ND.split(pieces)]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def sample(self, n: int, seed: int) -> Tensor:
        return torch.cat([p.x_ND for p in self.parts])[sample_rows(len(self), n, seed)]

    def assign(self, centroids_KD: Tensor) -> Sums:
        return reduce(add, (part.assign(centroids_KD) for part in reversed(self.parts)))


def run_in_parts(x_ND: Tensor, k: int, pieces: list[int], **settings: int) -> Clusters:
    starts = np.cumsum([0, *pieces])
    seen = reduce(add, (survey(x_ND[a:b], k, first=int(a)) for a, b in pairwise(starts)))
    grid = grid_for(seen, k)
    return kmeans(Parts(grid.snap(x_ND), pieces, grid), k, seed=3, grid=grid, **settings)


@pytest.mark.parametrize("init", ["kmeans++", "random"])
@pytest.mark.parametrize("seed", range(4))
def test_one_dimension_by_hand(init: str, seed: int) -> None:
    found = cluster(torch.tensor([[0.0], [10.0], [1.0], [9.0]]), 2, seed=seed, init=init)
    order = found.centroids_KD[:, 0].argsort()
    assert found.centroids_KD[order, 0].tolist() == [0.5, 9.5]
    assert found.counts_K.tolist() == [2, 2]
    assert found.inertia[-1] == pytest.approx(0.25)
    assert found.splits == 0


@pytest.mark.parametrize("seed", [0, 1])
def test_inertia_equals_scikit_learn_from_the_same_start(seed: int) -> None:
    x, k = blobs(3000, 8, 12, seed=seed, spread=2.0), 20
    source = ArraySource(grid_for(survey(x, k), k).snap(x))
    found = cluster(x, k, seed=seed, iterations=300, tolerance=0)
    start = plus_plus(source.sample(min(len(x), 32 * k), seed), k, seed)
    theirs = KMeans(k, init=start.numpy(), n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(x.numpy())
    assert found.splits == 0
    assert found.inertia[-1] == pytest.approx(theirs.inertia_ / len(x), rel=1e-3)
    # Equation 2 itself, of the centroids that were returned.
    assert found.inertia[-1] == pytest.approx(sum(brute_force(x, found.centroids_KD)[1]) / len(x), rel=1e-4)
    assert torch.equal(found.counts_K, torch.bincount(nearest_index(x, found.centroids_KD), minlength=k))


def test_inertia_equals_faiss_from_the_same_start() -> None:
    faiss = pytest.importorskip("faiss")
    x, k = blobs(3000, 8, 12, spread=2.0), 20
    start = plus_plus(x, k, 0)
    found = kmeans(StartAt(x, start), k, seed=0, init="random", iterations=12, tolerance=0)
    theirs = faiss.Kmeans(8, k, niter=12, max_points_per_centroid=3000)
    theirs.train(x.numpy(), init_centroids=start.numpy())
    assert found.inertia[0] == pytest.approx(theirs.obj[0] / len(x), rel=1e-4)
    assert found.inertia[11] == pytest.approx(theirs.obj[-1] / len(x), rel=1e-3)


class StartAt(ArraySource):
    """Vectors whose first centroids are given."""

    def __init__(self, x_ND: Tensor, start_KD: Tensor) -> None:
        super().__init__(x_ND)
        self.start_KD = start_KD

    def sample(self, n: int, seed: int) -> Tensor:
        return self.start_KD


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
    found = cluster(x, 40, seed=0)
    assert found.counts_K.tolist() == [1] * 40
    assert found.inertia[-1] == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(
        torch.tensor(sorted(found.centroids_KD.tolist())), torch.tensor(sorted(x.tolist())), rtol=0, atol=1e-5
    )


def test_one_word_is_the_mean() -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 3.0], [5.0, 5.0]])
    found = cluster(x, 1, seed=0)
    assert found.centroids_KD.tolist() == [[2.0, 3.0]]
    assert found.inertia[-1] == pytest.approx((8 + 1 + 13) / 3)
    assert cluster(torch.ones(5, 2), 1, seed=0).centroids_KD.tolist() == [[1.0, 1.0]]
    assert cluster(torch.zeros(5, 2), 1, seed=0).centroids_KD.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("x", "k", "message"),
    [
        (torch.rand(3, 2), 5, "vocabulary.size=5: there are only 3 feature vectors, use a smaller number or more"),
        (torch.rand(3, 2), 65537, "vocabulary.size=65537: words are stored as uint16, use 1..65536"),
        (torch.rand(3, 2), 0, "vocabulary.size=0: words are stored as uint16, use 1..65536"),
        (torch.ones(9, 2), 3, "feature vectors: all 9 are the same, the teacher has collapsed; use another teacher"),
        (torch.eye(3).repeat(20, 1), 6, "vocabulary.size=6: only 3 of the 60 feature vectors differ, use 1..3 or more"),
        (
            torch.cat([torch.rand(300_000, 1), torch.tensor([[1e9]])]),
            2,
            "largest value is 1e.09 but the mean is 3.33e.03",
        ),
    ],
)
def test_what_cannot_become_words_is_an_error_with_a_remedy(x: Tensor, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster(x, k, seed=0)


def test_other_errors_of_the_loop() -> None:
    source = ArraySource(torch.rand(30, 2))
    with pytest.raises(ValueError, match=r"vocabulary.size=31: there are only 30 feature vectors"):
        kmeans(source, 31, seed=0)
    with pytest.raises(ValueError, match=r"vocabulary.init='forgy': known are kmeans"):
        kmeans(source, 3, seed=0, init="forgy")
    with pytest.raises(ValueError, match=r"vocabulary.size=3: the saved state has 4 words"):
        kmeans(source, 3, seed=0, state=State(0, torch.zeros(4, 2)))


@pytest.mark.parametrize("init", ["kmeans++", "random"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 3e4])
def test_as_many_words_as_distinct_vectors(init: str, scale: float) -> None:
    distinct = torch.tensor([[1.0, 1.0], [5.0, 1.0], [3.0, 8.0], [0.0, 0.0]]) * scale
    found = cluster(distinct.repeat(20, 1), 4, seed=0, init=init, iterations=20)
    assert found.counts_K.tolist() == [20] * 4
    assert found.inertia[-1] == pytest.approx(0, abs=1e-9 * scale**2)


@pytest.mark.parametrize("init", ["kmeans++", "random"])
def test_a_source_without_survey_keeps_words_without_vectors(init: str) -> None:
    x = torch.tensor([[1.0, 1.0], [5.0, 1.0], [3.0, 8.0]]).repeat(20, 1)
    found = kmeans(ArraySource(x), 6, seed=0, init=init, iterations=20)
    assert torch.isfinite(found.centroids_KD).all()
    assert sorted(found.counts_K.tolist()) == [0, 0, 0, 20, 20, 20]
    assert found.inertia[-1] == pytest.approx(0, abs=1e-9)


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


def one_by_one(x_N: np.ndarray, k: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 99])
    chosen = [rng.choice(x_N)]
    while len(chosen) < k:
        squares = ((x_N[:, None] - np.array(chosen)) ** 2).min(1)
        chosen.append(rng.choice(x_N, p=squares / squares.sum()))
    return np.array(chosen)


def test_drawing_in_batches_gives_the_distribution_of_one_by_one() -> None:
    x_N = np.random.default_rng(0).normal(size=150).astype(np.float32) ** 3
    x_N1 = torch.from_numpy(x_N)[:, None]

    def mean_inertia(starts: list[np.ndarray]) -> float:
        return float(np.mean([((x_N[:, None] - start) ** 2).min(1).mean() for start in starts]))

    ours = mean_inertia([plus_plus(x_N1, 24, seed)[:, 0].numpy() for seed in range(400)])
    theirs = mean_inertia([one_by_one(x_N, 24, seed) for seed in range(400)])
    assert ours == pytest.approx(theirs, rel=0.06)
    uniform = mean_inertia([x_N[sample_rows(150, 24, seed).numpy()] for seed in range(400)])
    assert uniform > 2 * theirs


def test_empty_clusters_are_split_off_the_most_spread_by_hand() -> None:
    centroids = torch.tensor([[1024.0, 1024.0], [7.0, 7.0], [3.0, 3.0]], dtype=torch.float64)
    counts = torch.tensor([9, 0, 2])
    spread = np.array([288.0, 0.0, 1.0])  # a deviation of sqrt(288 / 9 / 2) = 4, and a quarter of it is 1
    assert split_empty(centroids, counts, spread, seed=0) == 1
    assert (centroids[0] + centroids[1]).tolist() == [2048.0, 2048.0]
    assert (centroids[0] - centroids[1]).abs().tolist() == [2.0, 2.0]
    assert centroids[2].tolist() == [3.0, 3.0]
    assert counts.tolist() == [9, 0, 2]
    assert spread.tolist() == [288, 0, 1]
    # Two empty ones: the second comes from the most spread after the first split, 5 < 8.
    centroids = torch.tensor([[0.0], [20.0], [0.0], [0.0]], dtype=torch.float64)
    assert split_empty(centroids, torch.tensor([9, 4, 0, 0]), np.array([10.0, 8.0, 0, 0]), seed=0) == 2
    assert abs(float(centroids[2])) == pytest.approx((10 / 9) ** 0.5 / 4)
    assert abs(float(centroids[3]) - 20) == pytest.approx((8 / 4) ** 0.5 / 4)
    assert split_empty(centroids, torch.tensor([1, 1, 1, 1]), np.ones(4), seed=0) == 0
    assert split_empty(centroids, torch.tensor([7, 0, 1, 1]), np.zeros(4), seed=0) == 0


class BadStart(ArraySource):
    """All first centroids are the same vector, so that all but one are empty."""

    def sample(self, n: int, seed: int) -> Tensor:
        return self.x_ND[:1].repeat(n, 1)


def test_no_word_stays_empty_after_a_bad_start() -> None:
    x = blobs(1000, 4, 8)
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


PIECES = {
    1: [3000],
    2: [1, 2999],
    3: [1024, 1000, 976],
    4: [700, 700, 700, 900],
    7: [429, 1, 2, 1025, 600, 900, 43],
}


@pytest.mark.parametrize("workers", PIECES)
@pytest.mark.parametrize("dims", [8, 65])
def test_result_is_the_same_bit_by_bit_however_the_vectors_are_split(workers: int, dims: int) -> None:
    x = blobs(3000, dims, 10, spread=2.0)
    whole = cluster(x, 40, seed=3)
    parts = run_in_parts(x, 40, PIECES[workers])
    assert len(whole.inertia) > 5
    assert torch.equal(parts.centroids_KD, whole.centroids_KD)
    assert torch.equal(parts.counts_K, whole.counts_K)
    assert parts.inertia == whole.inertia


def test_result_does_not_depend_on_threads() -> None:
    x = blobs(3000, 40, 10, spread=2.0)
    one = cluster(x, 60, seed=3)
    torch.set_num_threads(2)
    try:
        two = cluster(x, 60, seed=3)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one.centroids_KD, two.centroids_KD)
    assert one.inertia == two.inertia


def test_restarts_keep_the_best() -> None:
    x = blobs(600, 2, 15, spread=0.3)
    source = ArraySource(x)
    one = [kmeans(source, 15, seed=1_000_003 * r, init="random") for r in range(5)]
    best = kmeans(source, 15, seed=0, init="random", restarts=5)
    assert best.inertia[-1] == min(c.inertia[-1] for c in one)
    assert best.inertia[-1] < max(c.inertia[-1] for c in one)


@pytest.mark.parametrize("stop", [0, 1, 3, 6, 9])
def test_a_run_goes_on_where_it_was_stopped(stop: int) -> None:
    source = ArraySource(blobs(1500, 6, 9, spread=3.0))
    states: list[State] = []
    settings = {"seed": 2, "iterations": 4, "tolerance": 0.0, "restarts": 2}
    whole = kmeans(source, 12, on_state=states.append, **settings)  # type: ignore[arg-type]
    assert [(s.restart, len(s.inertia)) for s in states] == [(r, i) for r in range(2) for i in range(5)]
    file = io.BytesIO()
    torch.save(states[stop].pack(), file)
    file.seek(0)
    state = State.unpack(torch.load(file, weights_only=True))
    later: list[State] = []
    rest = kmeans(source, 12, state=state, on_state=later.append, **settings)  # type: ignore[arg-type]
    assert len(later) == len(states) - stop - 1
    assert torch.equal(rest.centroids_KD, whole.centroids_KD)
    assert torch.equal(rest.counts_K, whole.counts_K)
    assert (rest.inertia, rest.splits) == (whole.inertia, whole.splits)


def test_input_is_left_alone() -> None:
    x = blobs(60, 3, 4)
    before = x.clone()
    kmeans(ArraySource(x), 60, seed=0, init="random", iterations=5)
    cluster(x, 60, seed=0, init="random", iterations=5)
    assert torch.equal(x, before)


def test_sample_rows_are_distinct_and_rising() -> None:
    rows = sample_rows(100, 30, seed=0)
    assert len(rows) == 30
    assert (rows.diff() > 0).all()
    assert torch.equal(rows, sample_rows(100, 30, seed=0))
    assert not torch.equal(rows, sample_rows(100, 30, seed=1))
    assert sample_rows(5, 9, seed=0).tolist() == [0, 1, 2, 3, 4]
