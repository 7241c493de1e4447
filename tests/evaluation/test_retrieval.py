"""Retrieval against scikit-learn's average precision and a plain ranking."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score

import evaluation.retrieval
from bownet.config import Retrieval
from evaluation.retrieval import retrieval_score

Set = tuple[torch.Tensor, torch.Tensor]


def made(n: int, seed: int, classes: int = 5) -> Set:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    return torch.eye(12)[labels].double() + 0.6 * torch.randn(n, 12, generator=generator).double(), labels


def by_sklearn(gallery: Set, query: Set) -> float:
    cosine = (F.normalize(query[0], dim=1) @ F.normalize(gallery[0], dim=1).T).numpy()
    truth = query[1].numpy()[:, None] == gallery[1].numpy()
    return float(np.mean([average_precision_score(t, c) for t, c in zip(truth, cosine, strict=True)]))


def test_equals_scikit_learn_and_a_plain_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.retrieval, "_BLOCK_BYTES", 8 * 300 * 7)  # several blocks in a class
    gallery, query = made(300, 0), made(80, 1)
    score = retrieval_score(*gallery, *query, Retrieval(ranks=(1, 10)))
    assert score.metrics["map"] == pytest.approx(100 * by_sklearn(gallery, query), abs=1e-9)
    order = (F.normalize(query[0], dim=1) @ F.normalize(gallery[0], dim=1).T).argsort(1, descending=True)
    relevant = (gallery[1][order] == query[1][:, None]).double()
    for rank in (1, 10):
        assert score.metrics[f"precision_{rank}"] == pytest.approx(100 * relevant[:, :rank].mean().item())
    for c in range(5):
        of_class = query[1] == c
        expected = by_sklearn(gallery, (query[0][of_class], query[1][of_class]))
        assert score.details["map_by_class"][c] == pytest.approx(100 * expected)
    assert 30 < score.metrics["map"] < 95


def test_equal_similarities_share_their_rank() -> None:
    """By hand: the query's class is at cosine 1 (twice, beside one other) and at 0; the rest at -1."""
    gallery = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1], [-1, 0]])
    labels = torch.tensor([0, 0, 1, 0, 1])
    score = retrieval_score(gallery, labels, torch.tensor([[3.0, 0]]), torch.tensor([0]), Retrieval(ranks=(1, 2, 4)))
    assert score.metrics["map"] == pytest.approx(100 * (2 / 3 + 2 / 3 + 3 / 4) / 3)
    assert score.metrics["precision_1"] == pytest.approx(100 * 2 / 3)  # what is to be expected of a random order
    assert score.metrics["precision_2"] == pytest.approx(100 * 2 / 3)
    assert score.metrics["precision_4"] == pytest.approx(75)


def test_real_images(cifar: dict[str, Set]) -> None:
    query = tuple(part[:150] for part in cifar["test"])
    score = retrieval_score(*cifar["train"], query[0], query[1], Retrieval())
    assert score.metrics["map"] == pytest.approx(100 * by_sklearn(cifar["train"], (query[0], query[1])), abs=1e-3)
    assert 10 < score.metrics["map"] < 40


def test_queries_without_an_answer_are_left_out_and_counted() -> None:
    gallery, query = made(100, 0, classes=3), made(60, 1, classes=4)
    score = retrieval_score(*gallery, *query, Retrieval(ranks=(1,)))
    known = query[1] < 3
    assert score.details["left_out"] == int((~known).sum()) > 0
    assert score.metrics == retrieval_score(*gallery, query[0][known], query[1][known], Retrieval(ranks=(1,))).metrics
    with pytest.raises(ValueError, match="no query has an image of its class in the gallery"):
        retrieval_score(*gallery, query[0], query[1] + 10, Retrieval(ranks=(1,)))


def test_more_answers_than_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"retrieval.ranks=100: there are 50 images to find, use 1\.\.50"):
        retrieval_score(*made(50, 0), *made(5, 1), Retrieval())
