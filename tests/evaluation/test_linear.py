"""Linear classification against scikit-learn and against what must hold by construction."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bownet.config import Linear
from evaluation.linear import linear_accuracy


def blobs(n: int, seed: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes around three corners of an 8-dimensional simplex."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    return torch.eye(8)[labels] + noise * torch.randn(n, 8, generator=generator), labels


def test_separable_classes_are_learned_completely() -> None:
    metrics = linear_accuracy(*blobs(300, 0, 0.05), *blobs(300, 1, 0.05), Linear(epochs=20), seed=0)
    assert metrics == {"top1": 100.0, "train_top1": 100.0}


def test_agrees_with_logistic_regression_on_noisy_classes() -> None:
    train, test = blobs(3000, 0, 0.6), blobs(3000, 1, 0.6)
    ours = linear_accuracy(*train, *test, Linear(), seed=0)["top1"]
    reference = LogisticRegression(C=1.0).fit(train[0].numpy(), train[1].numpy())
    assert ours == pytest.approx(100 * reference.score(test[0].numpy(), test[1].numpy()), abs=1.0)
    assert 60 < ours < 95  # a hard case, or the agreement would mean nothing


def test_labels_without_meaning_give_chance() -> None:
    x, _ = blobs(900, 0, 0.5)
    labels = torch.randint(3, (900,), generator=torch.Generator().manual_seed(3))
    assert linear_accuracy(x, labels, *blobs(900, 1, 0.5), Linear(epochs=10), seed=0)["top1"] < 50


def test_batch_norm_makes_the_scale_of_a_feature_irrelevant() -> None:
    (x, y), (tx, ty) = blobs(600, 0, 0.5), blobs(600, 1, 0.5)
    scale = torch.tensor([1e-3, 1e3, 1, 1, 1, 1, 1, 1])
    config = Linear(epochs=10, batch_norm=True)
    plain = linear_accuracy(x, y, tx, ty, config, seed=0)
    scaled = linear_accuracy(x * scale, y, tx * scale, ty, config, seed=0)
    assert scaled["top1"] == pytest.approx(plain["top1"], abs=0.5)


def test_same_seed_same_result_and_the_features_are_left_alone() -> None:
    train, test = blobs(300, 0, 0.6), blobs(300, 1, 0.6)
    before = train[0].clone()
    config = Linear(epochs=5)
    assert linear_accuracy(*train, *test, config, seed=7) == linear_accuracy(*train, *test, config, seed=7)
    assert torch.equal(train[0], before)


def test_the_rate_is_dropped_as_the_protocol_says() -> None:
    """With a drop to nothing after the first epoch, more epochs change nothing."""
    train, test = blobs(300, 0, 0.6), blobs(300, 1, 0.6)
    stopped = Linear(epochs=1, drop_every=1, drop_factor=1e-12)
    longer = stopped.model_copy(update={"epochs": 5})
    assert linear_accuracy(*train, *test, stopped, seed=0) == linear_accuracy(*train, *test, longer, seed=0)
    undropped = longer.model_copy(update={"drop_factor": 1.0})
    assert linear_accuracy(*train, *test, undropped, seed=0) != linear_accuracy(*train, *test, longer, seed=0)
