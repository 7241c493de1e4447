"""VOC07 SVMs: against a plain loop over scikit-learn, the cost lists, the difficult rule, and what is refused."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from bownet.config import Data, Net, Voc07Svm
from bownet.images.augment import to_float
from bownet.images.sources import open_source
from bownet.images.views import squashed_view
from bownet.nets.build import build_backbone
from evaluation.voc07_svm import COSTS, Problem, Span, folds_of, normalised, obstacle, presence, voc07_svm

DEVKIT = Path(__file__).resolve().parents[3] / "shared" / "data" / "VOCdevkit"
CLASSES = ("cat", "dog", "cow")
REAL = ("person", "car", "chair")


def made(images: int, values: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features that tell of classes through noise, and presences with difficult ones among them."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(images, 3))
    mixing = np.random.default_rng(99).normal(size=(3, values))
    features = np.maximum(hidden @ mixing + 2 * rng.normal(size=(images, values)), 0).astype(np.float32)
    found = np.where(hidden > 0.8, 1, -1).astype(np.int8)
    found[(hidden > 0.7) & (hidden <= 0.8)] = 0
    return features, found


def slow(train: Any, test: Any, train_NC: Any, test_MC: Any, config: Voc07Svm) -> dict[int, tuple[float, float]]:
    """The protocol as it is written down: for each class the cost and the AP on test."""
    x, z = (f.reshape(len(f), -1).astype(np.float64) for f in (train, test))
    x, z = (np.stack([row / (np.sqrt((row**2).sum()) + 1e-5) for row in f]) for f in (x, z))
    results = {}
    for c in range(train_NC.shape[1]):
        y = np.array([1 if v == 1 else -1 for v in train_NC[:, c]])
        best = (-1.0, 0.0)
        for cost in COSTS[config.costs]:
            aps = []
            for fit, held in StratifiedKFold(config.folds, shuffle=True, random_state=config.seed).split(x, y):
                aps.append(
                    average_precision_score(y[held], svm(cost, config).fit(x[fit], y[fit]).decision_function(x[held]))
                )
            if np.mean(aps) > best[0]:
                best = (float(np.mean(aps)), cost)
        kept = [i for i in range(len(z)) if test_MC[i, c] != 0]
        scores = svm(best[1], config).fit(x, y).decision_function(z[kept])
        ranking = [test_MC[i, c] == 1 for _, i in sorted(zip(scores, kept, strict=True), reverse=True)]
        precision = [sum(ranking[: k + 1]) / (k + 1) for k in range(len(ranking))]
        area = sum(max(precision[k:]) for k in range(len(ranking)) if ranking[k]) / sum(ranking)
        results[c] = (best[1], 100 * area)
    return results


def svm(cost: float, config: Voc07Svm) -> LinearSVC:
    how = {"penalty": "l2", "loss": "squared_hinge", "dual": True, "tol": 1e-4, "max_iter": config.max_iter}
    return LinearSVC(C=cost, class_weight={1: 2, -1: 1}, random_state=config.seed, **how)


@pytest.mark.parametrize(("values", "costs", "seed"), [(20, "obow", 0), (150, "vissl", 3), (150, "goyal", 1)])
def test_agrees_with_the_plain_loop(values: int, costs: Any, seed: int) -> None:
    """Also where features are turned into the span of the training images."""
    config = Voc07Svm(costs=costs, seed=seed)
    (train, train_NC), (test, test_MC) = made(90, values, 0), made(60, values, 1)
    score = voc07_svm({"a": train}, {"a": test}, train_NC, test_MC, CLASSES, config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = slow(train, test, train_NC, test_MC, config)
    rows = [score.details["taps"]["a"]["classes"][name] for name in CLASSES]
    assert [row["cost"] for row in rows] == [cost for cost, _ in expected.values()]
    assert [row["ap"] for row in rows] == pytest.approx([ap for _, ap in expected.values()], abs=1e-9)
    assert score.metrics == {"a/map": pytest.approx(np.mean([ap for _, ap in expected.values()]))}
    assert score.details["taps"]["a"]["fits"] == len(COSTS[costs]) * 3 * 3 + 3


def real(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Features of a fresh network of real images of VOC2007, and who is in them."""
    source = open_source(Data(kind="voc", path=str(DEVKIT), voc_train="trainval07", storage="encoded"))
    pictures = list(source.splits[split].part(np.arange(len(source.splits[split]))).read())
    views = [torch.from_numpy(np.array(squashed_view(picture.content, 32, 37))) for picture in pictures]
    with torch.no_grad():
        maps = build_backbone(Net(arch="wrn-10-1"), 0).eval()(to_float(torch.stack(views)), ("block2",))["block2"]
    found = presence([picture.annotation for picture in pictures], source.categories)
    return maps.mean((2, 3)).numpy(), found[:, [source.categories.index(name) for name in REAL]]


@pytest.mark.skipif(not DEVKIT.exists(), reason="../shared/data is not here")
def test_agrees_with_the_plain_loop_on_real_images() -> None:
    config = Voc07Svm(costs="vissl", max_iter=100)
    (train, train_NC), (test, test_MC) = real("train"), real("test")
    assert (train_NC == 0).any() or (test_MC == 0).any()  # difficult ones are among them
    score = voc07_svm({"a": train}, {"a": test}, train_NC, test_MC, REAL, config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = slow(train, test, train_NC, test_MC, config)
    rows = [score.details["taps"]["a"]["classes"][name] for name in REAL]
    assert [row["cost"] for row in rows] == [cost for cost, _ in expected.values()]
    assert [row["ap"] for row in rows] == pytest.approx([ap for _, ap in expected.values()], abs=1e-9)
    assert all(5 < row["ap"] < 90 for row in rows)


def test_cost_lists() -> None:
    """As public code has them."""
    powers = {0.5**i for i in range(4, 20)}
    assert min(powers) == 0.5**19
    assert set(COSTS["goyal"]) == powers | {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100}
    assert set(COSTS["obow"]) == powers | {0.05, 0.1, 0.3, 0.5, 1, 3, 5}
    assert COSTS["vissl"] == (0.01, 0.1, 1, 2, 5, 10, 15, 20, 50, 100, 1000)
    assert [len(COSTS[name]) for name in ("goyal", "obow", "vissl")] == [26, 23, 11]
    assert all(list(costs) == sorted(costs) for costs in COSTS.values())


def test_however_units_are_spread_the_score_is_the_same() -> None:
    """And any set of taps can be asked for."""
    config = Voc07Svm(costs="vissl")
    (train, train_NC), (test, test_MC) = made(60, 100, 2), made(40, 100, 3)
    taps = {"a": train, "b": train[:, :30]}, {"a": test, "b": test[:, :30]}
    sizes = []

    def spread(function: Any, shared: Problem, units: Sequence[Any]) -> list[Any]:
        sizes.append(len(units))
        if units[0].fold is not None:  # each has one of the largest costs, which take longest, and no cost is left out
            assert all(max(u.costs) >= 20 for u in units)
            assert sorted({cost for u in units for cost in u.costs}) == sorted(COSTS["vissl"])
        made = {u: r for part in (units[1::2], units[::2]) for u, r in zip(part, function(shared, part), strict=True)}
        return [made[u] for u in units]

    one = voc07_svm(*taps, train_NC, test_MC, CLASSES, config)
    two = voc07_svm(*taps, train_NC, test_MC, CLASSES, config, spread)
    assert one == two
    assert sizes == [4 * 3 * 3, 3] * 2
    assert one.metrics.keys() == {"a/map", "b/map"}
    alone = voc07_svm({"b": train[:, :30]}, {"b": test[:, :30]}, train_NC, test_MC, CLASSES, config)
    assert alone.metrics["b/map"] == one.metrics["b/map"]


def test_difficult_ones_are_negatives_in_training_and_left_out_of_the_test() -> None:
    (train, train_NC), (test, test_MC) = made(80, 10, 4), made(60, 10, 5)

    def cats(features: Any, trained: Any, tested: Any) -> float:
        score = voc07_svm({"a": train}, {"a": features}, trained, tested, CLASSES, Voc07Svm(costs="vissl"))
        return score.details["taps"]["a"]["classes"]["cat"]["ap"]

    ap = cats(test, train_NC, test_MC)
    assert ap == cats(test, np.where(train_NC == 0, -1, train_NC), test_MC)
    assert ap != cats(test, np.where(train_NC == 0, 1, train_NC), test_MC)
    hard = test_MC[:, 0] == 0
    assert hard.any()
    moved = np.where(hard[:, None], 0, test)
    assert ap == cats(moved, train_NC, test_MC)
    assert ap != cats(test, train_NC, np.where(test_MC == 0, -1, test_MC))


def test_what_does_not_converge_is_counted_not_printed() -> None:
    (train, train_NC), (test, test_MC) = made(60, 100, 2), made(40, 100, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        short = voc07_svm({"a": train}, {"a": test}, train_NC, test_MC, CLASSES, Voc07Svm(costs="vissl", max_iter=1))
        long = voc07_svm({"a": train}, {"a": test}, train_NC, test_MC, CLASSES, Voc07Svm(costs="vissl", max_iter=10**6))
    assert short.details["taps"]["a"]["not_converged"] == 11 * 3 * 3 + 3
    assert short.details["taps"]["a"]["final_not_converged"] == [*CLASSES]
    assert long.details["taps"]["a"]["not_converged"] == 0
    assert long.details["taps"]["a"]["final_not_converged"] == []


def test_features_are_scaled_to_about_one_and_keep_their_inner_products() -> None:
    x = np.array([[[3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]], np.float32)
    np.testing.assert_allclose(normalised(x), [[3 / 5.00001, 0, 0, 4 / 5.00001], [0, 0, 0, 0]], rtol=1e-14)
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(20, 70)), rng.normal(size=(9, 70))
    train[5] = train[3]  # the same image twice: the span has one dimension less
    span = Span(train)
    a = span.train_ND
    assert a.shape == (20, 20)
    np.testing.assert_array_equal(a, np.tril(a))
    np.testing.assert_allclose(a @ a.T, train @ train.T, atol=1e-12)
    mixing = rng.normal(size=(2, 20))  # weights are sums of training images
    np.testing.assert_allclose(span.back(mixing @ a), mixing @ train, atol=1e-12)
    np.testing.assert_allclose(test @ span.back(a).T, test @ train.T, atol=1e-12)
    few = Span(train[:, :20])
    np.testing.assert_array_equal(few.train_ND, train[:, :20])
    np.testing.assert_array_equal(few.back(mixing), mixing)


def test_folds_are_stratified_and_follow_the_seed() -> None:
    _, found = made(90, 5, 6)
    folds = folds_of(found, 3, seed=0)
    for c in range(3):
        for labels in (found[:, c] == 1, found[:, c] != 1):
            counts = np.bincount(folds[labels, c], minlength=3)
            assert counts.max() - counts.min() <= 1
    assert (folds == folds_of(found, 3, seed=0)).all()
    assert (folds != folds_of(found, 3, seed=1)).any()


def test_presence() -> None:
    rows = [{"classes": {"cat": 1, "cow": 0}}, {"classes": {}}, {"classes": {"dog": 1}}]
    np.testing.assert_array_equal(presence(rows, CLASSES), [[1, -1, 0], [-1, -1, -1], [-1, 1, -1]])
    with pytest.raises(ValueError, match="an object is a 'cat'; there are dog, cow"):
        presence(rows, ("dog", "cow"))


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([], [[1, -1]], "there are 0 training and 1 test images"),
        ([[1, -1]] * 4, [], "there are 4 training and 0 test images"),
        ([[1, 0]] * 4 + [[-1, -1]] * 4, [[1, 1]], r"^dog has 0 training images: voc07_svm.folds=3 needs at least 3"),
        ([[1, 1]] * 2 + [[-1, -1]] * 4, [[1, 1]], "^cat has 2, dog has 2 training images"),
        ([[1, 1]] * 4 + [[1, -1]] * 4, [[1, 1]], "^cat has 0 training images without one"),
        ([[1, -1], [-1, 1]] * 4, [[1, 0], [-1, 0]], r"^no test image has a dog that is not difficult \(2 only"),
        ([[1, -1], [-1, 1]] * 4, [[-1, 1], [-1, -1]], "^no test image has a cat; use more"),
        ([[1, -1], [-1, 1]] * 4, [[1, 1], [1, -1]], "^every test image has a cat"),
    ],
)
def test_what_is_refused(train: list[list[int]], test: list[list[int]], message: str) -> None:
    presences = [np.array(rows, np.int8).reshape(-1, 2) for rows in (train, test)]
    reason = obstacle(*presences, ("cat", "dog"), 3)
    assert reason is not None
    with pytest.raises(ValueError, match=message):
        raise ValueError(reason)
    features = {"a": np.ones((len(train), 4))}, {"a": np.ones((len(test), 4))}
    with pytest.raises(ValueError, match=r"^voc07_svm: "):
        voc07_svm(*features, *presences, ("cat", "dog"), Voc07Svm())


def test_features_that_are_not_finite_are_refused() -> None:
    (train, train_NC), (test, test_MC) = made(60, 10, 2), made(40, 10, 3)
    train[7, 3] = np.nan
    with pytest.raises(ValueError, match="not finite; the network's training has diverged"):
        voc07_svm({"a": train}, {"a": test}, train_NC, test_MC, CLASSES, Voc07Svm())
