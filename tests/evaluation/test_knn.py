"""Weighted nearest neighbours against scikit-learn's."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

import evaluation.knn
from bownet.config import Knn
from evaluation.knn import knn_score

Set = tuple[torch.Tensor, torch.Tensor]


def made(n: int, seed: int) -> Set:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(6, (n,), generator=generator)
    return torch.eye(12)[labels] + 0.7 * torch.randn(n, 12, generator=generator), labels


def by_sklearn(train: Set, test: Set, k: int, temperature: float) -> np.ndarray:
    def weights(distance: np.ndarray) -> np.ndarray:
        return np.exp((1 - distance) / temperature)

    model = KNeighborsClassifier(k, weights=weights, metric="cosine", algorithm="brute")
    return model.fit(train[0].numpy(), train[1].numpy()).predict(test[0].numpy())


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_equals_scikit_learn(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.knn, "_BLOCK_BYTES", 4 * 300 * 64)  # several blocks
    train, test = made(300, 0), made(200, 1)
    score = knn_score(*train, *test, Knn(neighbours=(1, 7, 300), temperature=temperature))
    for k in (1, 7, 300):
        answers = by_sklearn(train, test, k, temperature)
        right = answers == test[1].numpy()
        assert score.metrics[f"top1_{k}"] == pytest.approx(100 * right.mean(), abs=1e-9)
        by_class = [100 * right[test[1].numpy() == c].mean() for c in range(6)]
        assert score.details[str(k)]["accuracy_by_class"] == pytest.approx(by_class)
    assert 30 < score.metrics["top1_7"] < 80  # chance is 17


def test_real_images(cifar: dict[str, Set]) -> None:
    score = knn_score(*cifar["train"], *cifar["test"], Knn(neighbours=(1, 20)))
    for k in (1, 20):
        right = by_sklearn(cifar["train"], cifar["test"], k, 0.07) == cifar["test"][1].numpy()
        assert score.metrics[f"top1_{k}"] == pytest.approx(100 * right.mean(), abs=0.26)  # a vote may be a tie
    assert 15 < score.metrics["top1_20"] < 50


def test_votes_by_hand() -> None:
    """One neighbour at cosine 1 against two at 0.6: exp(1/T) against 2 exp(0.6/T), so the temperature decides."""
    train = torch.tensor([[1.0, 0], [0.6, 0.8], [0.6, -0.8]])
    labels, query = torch.tensor([0, 1, 1]), torch.tensor([[2.0, 0.0]])

    def top1(temperature: float) -> float:
        config = Knn(neighbours=(3,), temperature=temperature)
        return knn_score(train, labels, query, torch.tensor([0]), config).metrics["top1_3"]

    assert [top1(0.5), top1(0.6), top1(1e-4)] == [100, 0, 100]  # equal where T = 0.4 / ln 2 = 0.577


@pytest.mark.parametrize("shift", [lambda x: x, lambda x: 100 * x])
def test_the_length_of_features_does_not_matter(shift: Callable[[torch.Tensor], torch.Tensor]) -> None:
    (x, y), test = made(100, 0), made(50, 1)
    config = Knn(neighbours=(5,))
    assert knn_score(shift(x), y, *test, config) == knn_score(x, y, *test, config)


def test_more_neighbours_than_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"knn.neighbours=200: there are 100 training images, use 1\.\.100"):
        knn_score(*made(100, 0), *made(5, 1), Knn())
