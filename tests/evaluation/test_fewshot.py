"""Few-shot episodes against a plain loop over episodes, the rules of sampling, and comparisons in pairs."""

import math

import pytest
import torch
import torch.nn.functional as F

import evaluation.prototypes
from bownet.config import Fewshot
from evaluation.episodes import Episodes, draw_episodes, seeded_episodes
from evaluation.fewshot import compare_paired, fewshot_accuracies, fewshot_score
from evaluation.prototypes import episode_scorer, worth_a_gram

LABELS = torch.arange(7).repeat(30)


def features(noise: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.eye(16)[LABELS] + noise * torch.randn(len(LABELS), 16, generator=generator)


def metrics_of(x: torch.Tensor, config: Fewshot) -> dict[str, float]:
    return fewshot_score(fewshot_accuracies(x, LABELS, config)).metrics


def slow_accuracy(x: torch.Tensor, support: torch.Tensor, query: torch.Tensor) -> float:
    """One episode, one query at a time, as the protocol is written."""
    prototypes = []
    for way in support:
        mean = torch.stack([x[i] / x[i].norm() for i in way]).mean(0)
        prototypes.append(mean / mean.norm())
    right = total = 0
    for way, images in enumerate(query):
        for i in images:
            scores = [float(F.cosine_similarity(x[i], p, dim=0)) for p in prototypes]
            right += scores.index(max(scores)) == way
            total += 1
    return right / total


def plain_loop(x: torch.Tensor, episodes: Episodes) -> torch.Tensor:
    """Episode by episode in double precision."""
    x, accuracies = x.double(), []
    for support_WS, query_WQ in zip(*episodes, strict=True):
        prototype_WD = F.normalize(F.normalize(x[support_WS], dim=2).mean(1), dim=1)
        score_WQV = F.normalize(x[query_WQ], dim=2) @ prototype_WD.T
        accuracies.append((score_WQV.argmax(2) == torch.arange(len(support_WS))[:, None]).double().mean())
    return torch.stack(accuracies)


@pytest.fixture(params=["gram", "features"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to score: with the matrix of all cosines, and without where it would not fit."""
    if request.param == "features":
        monkeypatch.setattr(evaluation.prototypes, "GRAM_BYTES", 0)
    assert worth_a_gram(LABELS, 10**9) == (request.param == "gram")
    return str(request.param)


def test_equals_a_plain_loop(form: str) -> None:
    x = features(0.4)
    config = Fewshot(shots=(3,), episodes=20, queries=5)
    episodes = draw_episodes(LABELS, 20, 3, config, torch.Generator().manual_seed(1))
    ours = episode_scorer(x, LABELS, 10**9)(episodes)
    slow = [slow_accuracy(x.double(), s, q) for s, q in zip(*episodes, strict=True)]
    torch.testing.assert_close(ours, torch.tensor(slow, dtype=torch.float64), atol=1e-12, rtol=0)
    assert 0.3 < ours.mean() < 0.99


@pytest.mark.parametrize("sizes", [[30] * 7, [16, 30, 21, 30, 40, 18, 25]])
def test_many_episodes_equal_a_plain_loop_to_the_last_query(form: str, sizes: list[int]) -> None:
    labels = torch.repeat_interleave(torch.tensor([3, 9, 4, 1, 20, 7, 8]), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    generator = torch.Generator().manual_seed(1)
    x = (
        torch.randn(21, 64, generator=generator)[labels] + 2 * torch.randn(len(labels), 64, generator=generator)
    ).relu()
    config = Fewshot(shots=(1, 5, 10), queries=6, episodes=600)
    accuracies = fewshot_accuracies(x, labels, config)
    for shots, ours in accuracies.items():
        torch.testing.assert_close(ours, plain_loop(x, seeded_episodes(labels, shots, config)), atol=1e-9, rtol=0)
        assert 0.25 < ours.mean() < 0.95


def test_near_ties_are_decided_in_double_precision(form: str) -> None:
    """All images are so alike that their cosines differ in the eleventh digit, which single precision does not have."""
    generator = torch.Generator().manual_seed(0)
    x = torch.ones(len(LABELS), 64, dtype=torch.float64)
    x += 1e-5 * (torch.randn(7, 64, generator=generator)[LABELS] + torch.randn(len(LABELS), 64, generator=generator))
    config = Fewshot(shots=(5,), episodes=60)
    ours = fewshot_accuracies(x, LABELS, config)[5]
    torch.testing.assert_close(ours, plain_loop(x, seeded_episodes(LABELS, 5, config)), atol=1e-9, rtol=0)
    assert ours.mean() > 0.5  # in single precision it is chance


def test_features_that_say_nothing_are_chance_and_not_a_fault(form: str) -> None:
    for x in (torch.zeros(len(LABELS), 8), torch.ones(len(LABELS), 8)):
        accuracy = fewshot_accuracies(x, LABELS, Fewshot(shots=(1, 5), episodes=10))
        assert [a.tolist() for a in accuracy.values()] == [[pytest.approx(0.2)] * 10] * 2  # all take the first class


def test_real_images(form: str, miniimagenet: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The novel classes of MiniImageNet, where features of a random network are all alike: cosines above 0.9."""
    x, labels = miniimagenet
    config = Fewshot(shots=(1, 5, 50), episodes=300)
    for shots, ours in fewshot_accuracies(x, labels, config).items():
        torch.testing.assert_close(ours, plain_loop(x, seeded_episodes(labels, shots, config)), atol=1e-9, rtol=0)
        assert 0.2 < ours.mean() < 0.6


def test_an_episode_never_repeats_an_image_and_keeps_to_its_classes() -> None:
    config = Fewshot(ways=4, queries=6)
    support, query = draw_episodes(LABELS, 200, 5, config, torch.Generator().manual_seed(0))
    assert support.shape == (200, 4, 5)
    assert query.shape == (200, 4, 6)
    for s, q in zip(support, query, strict=True):
        images = torch.cat([s.flatten(), q.flatten()])
        assert len(set(images.tolist())) == len(images)
        classes = LABELS[torch.cat([s, q], 1)]
        assert (classes == classes[:, :1]).all()
        assert len(set(classes[:, 0].tolist())) == 4
    used = torch.bincount(torch.cat([support.flatten(), query.flatten()]), minlength=len(LABELS))
    assert used.min() > 0  # every image comes up: nothing is left out by the sampling


def test_the_images_with_the_smallest_keys_are_drawn() -> None:
    config = Fewshot(ways=3, queries=4)
    support, query = draw_episodes(LABELS, 50, 2, config, torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(5)
    chosen = torch.rand(50, 7, generator=generator).argsort(1)[:, :3]
    order = torch.rand(50, 3, 30, generator=generator).argsort(2)[..., :6]
    member = torch.stack([torch.nonzero(c == LABELS)[:, 0] for c in range(7)])
    assert torch.equal(torch.cat([support, query], 2), member[chosen].gather(2, order))


def test_classes_of_different_sizes_are_never_padded_into_an_episode() -> None:
    labels = torch.tensor([0] * 4 + [1] * 30 + [2] * 7)
    config = Fewshot(ways=3, queries=2)
    support, query = draw_episodes(labels, 300, 2, config, torch.Generator().manual_seed(0))
    image = torch.cat([support, query], 2)
    classes = labels[image]
    assert (classes == classes[..., :1]).all()
    assert all(len(set(way.tolist())) == 4 for episode in image for way in episode)


def test_interval_is_that_of_the_mean() -> None:
    config = Fewshot(shots=(1,), episodes=300)
    metrics = metrics_of(features(0.5), config)
    accuracy = plain_loop(features(0.5), seeded_episodes(LABELS, 1, config))
    assert metrics["1shot"] == pytest.approx(100 * accuracy.mean().item())
    assert metrics["1shot_ci95"] == pytest.approx(100 * 1.96 * accuracy.std().item() / math.sqrt(300))
    assert metrics_of(features(0.5), Fewshot(shots=(1,), episodes=1))["1shot_ci95"] == 0


def test_perfect_and_meaningless_features() -> None:
    config = Fewshot(shots=(1, 5), episodes=100)
    assert metrics_of(features(0.0), config)["5shot"] == 100
    noise = torch.randn(len(LABELS), 16, generator=torch.Generator().manual_seed(4))
    assert metrics_of(noise, config)["5shot"] == pytest.approx(20, abs=4)


def test_two_models_see_the_same_episodes() -> None:
    config = Fewshot(shots=(5,), episodes=50)
    assert metrics_of(features(0.3), config) == metrics_of(10 * features(0.3), config)
    other = config.model_copy(update={"seed": 1})
    assert metrics_of(features(0.5), config) != metrics_of(features(0.5), other)


def test_a_comparison_in_pairs_by_hand_and_narrower_than_apart() -> None:
    a, b = torch.tensor([0.5, 0.7, 0.9, 0.7]), torch.tensor([0.4, 0.6, 0.6, 0.8])  # differences 0.1 0.1 0.3 -0.1
    found = compare_paired(a.double(), b.double())
    assert found.mean == pytest.approx(10)
    assert found.ci95 == pytest.approx(100 * 1.96 * math.sqrt((0.2**2 + 0.2**2) / 3) / 2, rel=1e-5)
    config = Fewshot(shots=(5,), episodes=300)
    one, two = (fewshot_accuracies(features(noise), LABELS, config)[5] for noise in (0.5, 0.55))
    apart = [fewshot_score({5: x}).metrics["5shot_ci95"] for x in (one, two)]
    paired = compare_paired(one, two)
    assert paired.mean > paired.ci95  # less noise is better, and that is certain
    assert paired.ci95 < 0.7 * math.hypot(*apart)
    with pytest.raises(ValueError, match="300 and 4 episodes: only results on the same episodes can be paired"):
        compare_paired(one, a)


def test_too_few_images_or_classes_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"50 shots and 15 queries need 65 images of each class, the smallest has 30"):
        metrics_of(features(0.1), Fewshot())
    with pytest.raises(ValueError, match=r"fewshot.ways=9: the set has 7 classes"):
        metrics_of(features(0.1), Fewshot(ways=9, shots=(1,)))


def test_a_matrix_is_made_where_it_pays() -> None:
    labels = torch.arange(20).repeat(100)
    assert worth_a_gram(labels, 4 * 2000 * 75)
    assert not worth_a_gram(labels, 100 * 75)
    assert not worth_a_gram(torch.arange(20).repeat(600), 4 * 2000 * 75)
