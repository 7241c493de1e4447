"""The nearest centroid against brute force; sums of vectors on a grid, exact in any order."""

from __future__ import annotations

import pytest
import torch
from torch import Generator
from vectors import blobs, brute_force

from bownet.words.grid import Grid, grid_for, survey
from bownet.words.kmeans import cluster
from bownet.words.nearest import Assigner, Sums, nearest_index


def test_nearest_equals_brute_force() -> None:
    x, centroids = blobs(300, 5, 4), blobs(17, 5, 17, seed=1)
    assert nearest_index(x, centroids).tolist() == brute_force(x, centroids)[0]


def test_nearest_over_several_chunks() -> None:
    x, centroids = blobs(2500, 3, 4), blobs(9, 3, 9, seed=1)  # chunks of 1024, the last one short
    assert torch.equal(nearest_index(x, centroids), torch.cdist(x.double(), centroids.double()).argmin(1))


def test_sums_by_hand() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [10.0, 10.0], [10.0, 12.0]])
    centroids = torch.tensor([[0.0, 0.0], [10.0, 10.0], [99.0, 99.0]])
    sums = Assigner(x)(centroids)
    assert sums.counts_K.tolist() == [2, 2, 0]
    assert sums.sums_KD.tolist() == [[1.0, 0.0], [20.0, 22.0], [0.0, 0.0]]
    assert sums.sums_KD.dtype == torch.float64
    assert sums.squares_K.tolist() == [1, 200 + 244, 0]
    assert sums.inertia(centroids) == 1 + 4
    assert sums.means().tolist() == [[0.5, 0.0], [10.0, 11.0], [0.0, 0.0]]
    assert sums.spread_K(None).tolist() == [0.5, 2.0, 0.0]
    twice = sums + sums
    assert twice.counts_K.tolist() == [4, 4, 0]
    assert twice.inertia(centroids) == 10
    reduced = Sums.of_flat(sums.flat() + sums.flat(), 3)
    for got, wanted in zip(vars(reduced).values(), vars(twice).values(), strict=True):
        assert got.dtype == wanted.dtype
        assert torch.equal(got, wanted)


def test_the_lower_of_two_equally_near_centroids_is_taken() -> None:
    generator = Generator().manual_seed(0)
    grid = Grid(2.0**-20, 1.0)
    x = grid.snap(torch.rand(2000, 64, generator=generator))
    centroids = grid.snap(torch.rand(12, 64, generator=generator))
    twice = torch.cat([centroids, centroids[torch.randperm(12, generator=generator)], centroids])
    assert nearest_index(x, twice).max() < 12
    assert torch.equal(nearest_index(x, twice), nearest_index(x, centroids))


def test_what_single_precision_cannot_tell_is_decided_in_double() -> None:
    generator = Generator().manual_seed(0)
    x = 1000 + torch.rand(3000, 32, generator=generator)  # far from the origin: the product loses four digits
    centroids = 1000 + torch.rand(50, 32, generator=generator)
    expected = torch.cdist(x.double(), centroids.double(), compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    assert torch.equal(nearest_index(x, centroids), expected)
    scores = torch.addmm(centroids.square().sum(1) / 2, x, centroids.T, alpha=-1)
    assert not torch.equal(scores.argmin(1), expected)  # which is why


def test_a_row_has_the_same_word_wherever_it_stands() -> None:
    x = blobs(4000, 33, 7, spread=3.0)
    centroids = blobs(130, 33, 11, seed=1)
    expected = nearest_index(x, centroids)
    for size in (1, 3, 17, 1000, 1025):
        assert torch.equal(
            torch.cat([nearest_index(part.clone(), centroids) for part in x[:2050].split(size)]), expected[:2050]
        )
    order = torch.randperm(4000, generator=Generator().manual_seed(1))
    assert torch.equal(nearest_index(x[order], centroids), expected[order])
    torch.set_num_threads(2)
    try:
        assert torch.equal(nearest_index(x, centroids), expected)
    finally:
        torch.set_num_threads(1)


def test_bad_vectors_are_named() -> None:
    x = blobs(20, 3, 4)
    x[7, 1], x[12, 2] = torch.nan, torch.inf
    with pytest.raises(ValueError, match=r"feature vectors: 2 of 20 are not finite \(rows 7, 12\)"):
        nearest_index(x, x[:2])
    with pytest.raises(ValueError, match=r"2 of 20 are not finite \(rows 7, 12\); the teacher's training has diverged"):
        cluster(x, 2, seed=0)
    seen = survey(x[:10], 2, first=0) + survey(x[10:], 2, first=10)
    assert (seen.bad, seen.bad_rows, seen.rows) == ((7, 12), 2, 20)
    with pytest.raises(ValueError, match=r"40 of 40 are not finite \(rows 0, 1, 2, 3, 4, 5, 6, 7, ...\)"):
        cluster(torch.full((40, 3), torch.nan), 2, seed=0)
    with pytest.raises(ValueError, match="feature vectors have 3 channels, the centroids 4"):
        nearest_index(x, torch.zeros(2, 4))


def test_grid_by_hand() -> None:
    x = torch.tensor([[3.0, -5.0], [0.1, 0.7]])
    grid = grid_for(survey(x, 2), 2)
    # 5 is below 2^3; 23 bits of it, so that float32 holds the values: steps of 2^-20.
    assert grid.step == 2.0**-20
    assert (grid.snap(x) / grid.step).frac().count_nonzero() == 0
    torch.testing.assert_close(grid.snap(x), x, rtol=0, atol=2.0**-21)
    copy = x.clone()
    assert torch.equal(grid.snap_(copy), grid.snap(x))
    assert copy.tolist() == grid.snap(x).tolist()


def test_sums_on_the_grid_are_exact() -> None:
    x = 100 * torch.randn(20_000, 64, generator=Generator().manual_seed(0))
    grid = grid_for(survey(x, 2), 2)
    x = grid.snap(x)
    assert torch.equal((x / grid.step).round() * grid.step, x)
    forward, backward = (Assigner(v, grid)(torch.zeros(1, 64)) for v in (x, x.flip(0)))
    integers = (x.double() / grid.step).long()
    assert torch.equal((forward.sums_KD[0] / grid.step).long(), integers.sum(0))
    assert torch.equal(forward.sums_KD, backward.sums_KD)
    assert torch.equal(forward.squares_K, backward.squares_K)
    exact = sum(int(v) ** 2 for v in integers[:2000].flatten().tolist()) * grid.step**2
    assert float(Assigner(x[:2000], grid)(torch.zeros(1, 64)).squares_K) == pytest.approx(exact, rel=1e-9)
