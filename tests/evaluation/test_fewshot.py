"""Few-shot episodes against a plain loop over episodes, and the rules of sampling."""

import math

import pytest
import torch
import torch.nn.functional as F

from bownet.config import Fewshot
from evaluation.fewshot import draw_episodes, episode_accuracy, fewshot_accuracy

LABELS = torch.arange(7).repeat(30)


def features(noise: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.eye(16)[LABELS] + noise * torch.randn(len(LABELS), 16, generator=generator)


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


def test_equals_a_plain_loop() -> None:
    x = features(0.4).double()
    config = Fewshot(shots=(3,), episodes=20, queries=5)
    support, query = draw_episodes(LABELS, 20, 3, config, torch.Generator().manual_seed(1))
    ours = episode_accuracy(F.normalize(x, dim=1), support, query)
    slow = torch.tensor([slow_accuracy(x, s, q) for s, q in zip(support, query, strict=True)], dtype=torch.float64)
    torch.testing.assert_close(ours, slow, atol=1e-12, rtol=0)
    assert 0.3 < ours.mean() < 0.99


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


def test_classes_of_different_sizes_are_never_padded_into_an_episode() -> None:
    labels = torch.tensor([0] * 4 + [1] * 30 + [2] * 7)
    config = Fewshot(ways=3, queries=2)
    support, query = draw_episodes(labels, 300, 2, config, torch.Generator().manual_seed(0))
    classes = labels[torch.cat([support, query], 2)]
    assert (classes == classes[..., :1]).all()


def test_interval_is_that_of_the_mean() -> None:
    config = Fewshot(shots=(1,), episodes=300)
    metrics = fewshot_accuracy(features(0.5), LABELS, config)
    generator = torch.Generator().manual_seed(config.seed * 1000 + 1)
    unit = F.normalize(features(0.5).double(), dim=1)
    accuracy = torch.cat([episode_accuracy(unit, *draw_episodes(LABELS, 100, 1, config, generator)) for _ in range(3)])
    assert metrics["1shot"] == pytest.approx(100 * accuracy.mean().item())
    assert metrics["1shot_ci95"] == pytest.approx(100 * 1.96 * accuracy.std().item() / math.sqrt(300))


def test_perfect_and_meaningless_features() -> None:
    config = Fewshot(shots=(1, 5), episodes=100)
    assert fewshot_accuracy(features(0.0), LABELS, config)["5shot"] == 100
    noise = torch.randn(len(LABELS), 16, generator=torch.Generator().manual_seed(4))
    assert fewshot_accuracy(noise, LABELS, config)["5shot"] == pytest.approx(20, abs=4)


def test_two_models_see_the_same_episodes() -> None:
    config = Fewshot(shots=(5,), episodes=50)
    assert fewshot_accuracy(features(0.3), LABELS, config) == fewshot_accuracy(10 * features(0.3), LABELS, config)
    other = config.model_copy(update={"seed": 1})
    assert fewshot_accuracy(features(0.5), LABELS, config) != fewshot_accuracy(features(0.5), LABELS, other)


def test_too_few_images_or_classes_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"50 shots and 15 queries need 65 images of each class, the smallest has 30"):
        fewshot_accuracy(features(0.1), LABELS, Fewshot())
    with pytest.raises(ValueError, match=r"fewshot.ways=9: the set has 7 classes"):
        fewshot_accuracy(features(0.1), LABELS, Fewshot(ways=9, shots=(1,)))
