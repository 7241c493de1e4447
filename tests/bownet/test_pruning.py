"""Pruning leaves out only what cannot be the nearest: results equal those of all distances in double precision."""

import pytest
import torch
from torch import Generator, Tensor

from bownet.words import nearest, pruning
from bownet.words.grid import Grid, grid_for, survey
from bownet.words.nearest import Assigner, nearest_index
from bownet.words.pruning import Pairs, Sketch

K, D = 640, 128


def features(n: int, decay: float = 0.9, seed: int = 0) -> Tensor:
    """Vectors whose spread falls by `decay` from one hidden direction to the next, as that of real features does."""
    generator = Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(D, D, generator=Generator().manual_seed(1)))[0]
    return (torch.randn(n, D, generator=generator) * decay ** torch.arange(D)) @ directions


def all_distances(x_ND: Tensor, centroids_KD: Tensor) -> Tensor:
    x, c = x_ND.double(), centroids_KD.double()
    return torch.stack([(row - c).square().sum(1).argmin() for row in x])


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What pruning left of every chunk: the number of pairs, or None where it gave up."""
    seen: list[int | None] = []
    real = Sketch.pairs

    def pairs(self: Sketch, x_ND: Tensor, guess_N: Tensor | None) -> Pairs | None:
        found = real(self, x_ND, guess_N)
        seen.append(len(found.columns_P) if found else None)
        return found

    monkeypatch.setattr(Sketch, "pairs", pairs)
    return seen


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize("offset", [0.0, 0.5, 30.0])
def test_as_all_distances(scale: float, offset: float, kept: list[int | None]) -> None:
    x, centroids = scale * (features(1500) + offset), scale * (features(K, seed=2) + offset)
    expected = all_distances(x, centroids)
    assert torch.equal(nearest_index(x, centroids), expected)
    assert torch.equal(nearest_index(x, centroids, expected), expected)
    if offset < 1:  # far from the origin single precision cannot tell much, and the bounds know it
        assert len(kept) == 4
        assert all(count is not None and count < 0.05 * 1024 * K for count in kept)


def test_a_guess_changes_nothing(kept: list[int | None]) -> None:
    x, centroids = features(1000), features(K, seed=2)
    expected = all_distances(x, centroids)
    generator = Generator().manual_seed(0)
    second_best = torch.cdist(x, centroids).topk(2, largest=False).indices[:, 1]
    for guess in (expected, second_best, torch.randint(K, (1000,), generator=generator), torch.zeros(1000).long()):
        assert torch.equal(nearest_index(x, centroids, guess), expected)
    assert None not in kept[:2]
    assert kept[0] < kept[1]  # the nearer the guess, the fewer remain


def test_equal_and_almost_equal_centroids(kept: list[int | None]) -> None:
    grid = Grid(2.0**-20, 1.0)
    base = grid.snap(features(K // 2, seed=2))
    x = grid.snap(torch.cat([features(500), base, base + 1e-5 * features(K // 2, seed=3)]))
    twins = torch.cat([base, base])
    assert torch.equal(nearest_index(x, twins), all_distances(x, twins))
    almost = grid.snap(torch.cat([base, base + 1e-5 * features(K // 2, seed=4)]))
    expected = all_distances(x, almost)
    assert torch.equal(nearest_index(x, almost), expected)
    assert torch.equal(nearest_index(x, almost, expected.roll(1)), expected)
    assert nearest_index(x, base[:1].expand(K, D).contiguous()).max() == 0
    assert None not in kept[:2]


def test_where_nothing_can_be_left_out_the_whole_product_is_taken(kept: list[int | None]) -> None:
    x, centroids = features(9000, decay=1.0), features(K, decay=1.0, seed=2)
    assert torch.equal(nearest_index(x[:300], centroids), all_distances(x[:300], centroids))
    kept.clear()
    nearest_index(x, centroids)
    assert kept == [None] * 3  # of nine chunks: after a try one goes without, then two, then four


def test_vectors_that_are_not_finite_are_named() -> None:
    x = features(3000)
    x[1500, 3], x[2100] = torch.nan, torch.inf
    with pytest.raises(ValueError, match=r"2 of 3000 are not finite \(rows 1500, 2100\)"):
        nearest_index(x, features(K, seed=2))


def test_small_vocabularies_and_other_types_are_left_alone(kept: list[int | None]) -> None:
    nearest_index(features(100), features(pruning.MIN_WORDS - 1))
    nearest_index(features(100).double(), features(K).double())
    nearest_index(features(100)[:, : pruning.MIN_CHANNELS - 1], features(K)[:, : pruning.MIN_CHANNELS - 1])
    assert not kept


def test_an_assigner_that_remembers_gives_the_bits_of_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    x = features(4000)
    grid = grid_for(survey(x, K), K)
    x, centroids = grid.snap(x), grid.snap(features(K, seed=2))
    remembers, added = Assigner(x, grid), []
    real = Assigner._add_up
    monkeypatch.setattr(
        Assigner, "_add_up", lambda *a: added.append(len(a[3]) if len(a) > 3 else len(a[1])) or real(*a)
    )
    for _ in range(6):
        sums = remembers(centroids)
        last = added[-1]
        assert torch.equal(sums.flat(), Assigner(x, grid)(centroids).flat())
        centroids = grid.snap(torch.where(sums.counts_K[:, None] > 0, sums.means(), centroids.double())).float()
    assert last < 1000  # only those that had moved were added
    for start in (features(K, seed=5), features(K // 2, seed=6), centroids):
        assert torch.equal(remembers(start).flat(), Assigner(x, grid)(start).flat())


def test_another_start_is_not_guessed_from_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    x, guesses = features(1000), []
    real = nearest_index
    monkeypatch.setattr(nearest, "nearest_index", lambda x, c, guess=None: guesses.append(guess) or real(x, c, guess))
    assign, start = Assigner(x), x[:K].clone()
    for centroids in (start, start + 1e-3, start.flip(0), start[:10]):
        assign(centroids)
    assert [guess is not None for guess in guesses] == [False, True, False, False]


def test_bounds_that_are_reached_leave_out_nothing_near() -> None:
    """Sixteen coordinates are known and the rest lies in one direction: each bound is then the score itself."""
    spread = torch.cat([torch.ones(16), torch.tensor([0.95]), torch.zeros(D - 17)])
    directions = torch.linalg.qr(torch.randn(D, D, generator=Generator().manual_seed(1)))[0]
    generator = Generator().manual_seed(0)
    centroids = (
        torch.randn(K, D, generator=generator) * spread
    ).abs() @ directions  # all on one side: tails are parallel
    x = (torch.randn(3000, D, generator=generator) * spread).abs() @ directions
    expected = all_distances(x, centroids)
    second_best = torch.cdist(x.double(), centroids.double()).topk(2, largest=False).indices[:, 1]
    assert torch.equal(nearest_index(x, centroids, second_best), expected)
