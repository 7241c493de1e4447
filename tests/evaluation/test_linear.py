"""Linear classification against autograd, scikit-learn and what must hold by construction."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, top_k_accuracy_score

from bownet.config import Linear
from evaluation.linear import fit_linear, linear_score
from evaluation.tally import Tally

Set = tuple[torch.Tensor, torch.Tensor]


def blobs(n: int, seed: int, noise: float, classes: int = 3) -> Set:
    """Classes around corners of an 8-dimensional simplex."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    return torch.eye(8)[labels] + noise * torch.randn(n, 8, generator=generator), labels


def score(train: Set, test: Set, config: Linear, seed: int = 0) -> dict[str, float]:
    return linear_score({"pool": (train[0], test[0])}, train[1], test[1], config, seed, "pool").metrics


def by_autograd(x: torch.Tensor, y: torch.Tensor, classes: int, config: Linear, seed: int) -> torch.Tensor:
    """The same classifier with torch's own optimiser and gradients: weights with the bias as the last column."""
    generator = torch.Generator().manual_seed(seed)
    if config.batch_norm:
        x = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()
    weight = (torch.randn(classes, x.shape[1], generator=generator) * 0.01).to(x.dtype).requires_grad_()
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    settings = {"momentum": config.momentum, "nesterov": config.nesterov, "weight_decay": config.weight_decay}
    optimiser = torch.optim.SGD([weight, bias], lr=config.lr, **settings)
    for epoch in range(config.epochs):
        optimiser.param_groups[0]["lr"] = config.lr * config.drop_factor ** (epoch // config.drop_every)
        for rows in torch.randperm(len(x), generator=generator).split(config.batch):
            optimiser.zero_grad()
            F.cross_entropy(F.linear(x[rows], weight, bias), y[rows]).backward()
            optimiser.step()
    return torch.cat([weight, bias[:, None]], 1).detach()


@pytest.mark.parametrize(
    "settings",
    [{}, {"nesterov": True}, {"batch_norm": True}, {"momentum": 0.0, "weight_decay": 0.0}, {"batch": 50, "lr": 0.5}],
)
def test_the_trajectory_is_that_of_autograd_and_sgd(settings: dict[str, Any]) -> None:
    x, y = blobs(333, 0, 0.6, classes=7)  # the last batch is not full
    config = Linear(epochs=7, drop_every=3, **settings)
    ours = fit_linear(x, y, 7, config, seed=3).weight_CE
    torch.testing.assert_close(ours, by_autograd(x, y, 7, config, seed=3), atol=2e-5, rtol=1e-4)
    elsewhere = by_autograd(x, y, 7, config.model_copy(update={"lr": 0.101}), seed=3)
    assert not torch.allclose(ours, elsewhere, atol=2e-4, rtol=1e-3)  # so the agreement means something


def test_separable_classes_are_learned_completely() -> None:
    metrics = score(blobs(300, 0, 0.05), blobs(300, 1, 0.05), Linear(epochs=20))
    names = {"top1", "train_top1", "pool/top1", "pool/train_top1"}  # no top5 of three classes
    assert metrics == dict.fromkeys(names, 100.0)


def test_agrees_with_logistic_regression_on_noisy_classes() -> None:
    train, test = blobs(3000, 0, 0.6), blobs(3000, 1, 0.6)
    ours = score(train, test, Linear())["top1"]
    reference = LogisticRegression(C=1.0).fit(train[0].numpy(), train[1].numpy())
    assert ours == pytest.approx(100 * reference.score(test[0].numpy(), test[1].numpy()), abs=1.0)
    assert 60 < ours < 95  # a hard case, or the agreement would mean nothing


def test_labels_without_meaning_give_chance() -> None:
    x, _ = blobs(900, 0, 0.5)
    labels = torch.randint(3, (900,), generator=torch.Generator().manual_seed(3))
    assert score((x, labels), blobs(900, 1, 0.5), Linear(epochs=10))["top1"] < 50


def test_batch_norm_makes_the_scale_of_a_feature_irrelevant() -> None:
    (x, y), (tx, ty) = blobs(600, 0, 0.5), blobs(600, 1, 0.5)
    scale = torch.tensor([0.1, 1e3, 1, 1, 1, 1, 1, 1])  # the smallest variance stays far above 1e-5
    config = Linear(epochs=10, batch_norm=True)
    plain = score((x, y), (tx, ty), config)
    scaled = score((x * scale, y), (tx * scale, ty), config)
    assert scaled["top1"] == pytest.approx(plain["top1"], abs=0.5)


def test_batch_norm_is_torchs_over_all_training_images() -> None:
    """Also of a value that changes in the test alone: 0.01 more becomes 0.01 / sqrt(1e-5) = 3.16, which is harmless."""
    (x, y), (test_x, test_y) = blobs(300, 0, 0.2), blobs(90, 1, 0.2)
    x[:, 3], test_x[:, 3] = 2.0, 2.01
    config = Linear(epochs=10, batch_norm=True)
    made = fit_linear(x, y, 3, config, seed=0)
    assert made.scale_D is not None
    assert made.scale_D[3].item() == pytest.approx(316.228, rel=1e-5)
    torch.testing.assert_close((x - made.shift_D) * made.scale_D, torch.nn.BatchNorm1d(8, affine=False)(x))
    assert score((x, y), (test_x, test_y), config)["top1"] > 99


def test_same_seed_same_result_and_the_features_are_left_alone() -> None:
    train, test = blobs(300, 0, 0.6), blobs(300, 1, 0.6)
    before = train[0].clone()
    config = Linear(epochs=5, batch_norm=True)
    assert score(train, test, config, seed=7) == score(train, test, config, seed=7)
    assert torch.equal(train[0], before)


def test_the_rate_is_dropped_as_the_protocol_says() -> None:
    """With a drop to nothing after the first epoch, more epochs change nothing."""
    train, test = blobs(300, 0, 0.6), blobs(300, 1, 0.6)
    stopped = Linear(epochs=1, drop_every=1, drop_factor=1e-12)
    longer = stopped.model_copy(update={"epochs": 5})
    assert score(train, test, stopped) == score(train, test, longer)
    undropped = longer.model_copy(update={"drop_factor": 1.0})
    assert score(train, test, undropped) != score(train, test, longer)


def test_every_tap_has_a_classifier_of_its_own() -> None:
    train, test = blobs(300, 0, 0.5), blobs(300, 1, 0.5)
    noise = torch.randn(300, 4, generator=torch.Generator().manual_seed(9))
    taps = {"block1": (noise, noise), "pool": (train[0], test[0])}
    both = linear_score(taps, train[1], test[1], Linear(epochs=5), 0, "pool")
    alone = score(train, test, Linear(epochs=5))
    assert {k: v for k, v in both.metrics.items() if not k.startswith("block1/")} == alone
    assert both.metrics["block1/top1"] < both.metrics["pool/top1"] == both.metrics["top1"]
    assert both.details.keys() == {"block1", "pool"}
    named = linear_score({"block1": taps["block1"]}, train[1], test[1], Linear(epochs=1), 0, "pool")
    assert named.metrics.keys() == {"block1/top1", "block1/train_top1"}


def test_a_divergent_classifier_is_told() -> None:
    x, y = blobs(200, 0, 0.5)
    with pytest.raises(ValueError, match=r"linear.lr=100.0: the classifier of pool has diverged; use a smaller rate"):
        score((x * 1e12, y), (x, y), Linear(lr=100, weight_decay=1, epochs=5))


def test_counts_against_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(500, 9)).astype(np.float32), rng.integers(8, size=500)  # class 8 never occurs
    scores[np.arange(500), labels] += 1
    tally = Tally(9)
    for part in np.array_split(np.arange(500), 3):
        tally.add(torch.from_numpy(scores[part]), torch.from_numpy(labels[part]))
    answers = scores.argmax(1)
    assert tally.metrics()["top1"] == pytest.approx(100 * accuracy_score(labels, answers))
    five = top_k_accuracy_score(labels, scores, k=5, labels=np.arange(9))
    assert tally.metrics()["top5"] == pytest.approx(100 * five)
    confusion = confusion_matrix(labels, answers, labels=np.arange(9))
    assert tally.details()["confusion"] == confusion.tolist()
    expected = [100 * confusion[c, c] / confusion[c].sum() for c in range(8)]
    assert tally.accuracy_by_class() == [*map(pytest.approx, expected), None]


def test_real_images(cifar: dict[str, Any]) -> None:
    """Ten classes of CIFAR-10 on features of a random network, against the answers of autograd's classifier."""
    (x, y), (tx, ty) = cifar["train"], cifar["test"]
    config = Linear(epochs=30, batch_norm=True)
    found = linear_score({"pool": (x, tx)}, y, ty, config, 0, "pool")
    weight = by_autograd(x, y, 10, config, 0)
    standard = (tx - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()
    scores = F.linear(standard, weight[:, :-1], weight[:, -1]).numpy()
    assert found.metrics["top1"] == pytest.approx(100 * accuracy_score(ty.numpy(), scores.argmax(1)), abs=0.26)
    assert found.metrics["top5"] == pytest.approx(100 * top_k_accuracy_score(ty.numpy(), scores, k=5), abs=0.26)
    assert 20 < found.metrics["top1"] < 50  # chance is 10
    assert np.array(found.details["pool"]["confusion"]).sum(1).tolist() == np.bincount(ty.numpy()).tolist()
