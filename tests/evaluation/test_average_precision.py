"""Average precision: by hand, against scikit-learn, and against a plain loop over the ranking."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from evaluation.average_precision import area_of_curve, average_precision

KINDS = ("area", "voc07", "steps")


def slow(scores: list[float], labels: list[bool], kind: str) -> float:
    """The definitions, one point after the other; all scores differ."""
    ranking = [label for _, label in sorted(zip(scores, labels, strict=True), reverse=True)]
    points, right = [], 0
    for rank, label in enumerate(ranking, 1):
        right += label
        points.append((right / sum(labels), right / rank))
    if kind == "voc07":
        best = [max([p for r, p in points if r >= t], default=0.0) for t in np.arange(0.0, 1.1, 0.1)]
        return sum(best) / 11
    total, before = 0.0, 0.0
    for i, (recall, precision) in enumerate(points):
        height = precision if kind == "steps" else max(p for _, p in points[i:])
        total += (recall - before) * height
        before = recall
    return total


def test_by_hand() -> None:
    """Right, wrong, right, right, wrong: precisions 1, 1/2, 2/3, 3/4, 3/5 at recalls 1/3, 1/3, 2/3, 1, 1."""
    scores, labels = np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([1, 0, 1, 1, 0])
    assert average_precision(scores, labels, "steps") == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert average_precision(scores, labels, "area") == pytest.approx((1 + 3 / 4 + 3 / 4) / 3)
    # the envelope is 1 up to a recall of 1/3 (0, 0.1, 0.2, 0.3) and 3/4 at the other seven
    assert average_precision(scores, labels, "voc07") == pytest.approx((4 + 7 * 3 / 4) / 11)


def test_a_recall_of_three_tenths_is_just_below_the_fourth_of_the_eleven() -> None:
    """As in detectron2, whose recalls are multiples of 0.1 in floating point: 0, 0.1 and 0.2 are reached."""
    recall, precision = np.array([0.1, 0.2, 3 / 10]), np.ones(3)
    assert area_of_curve(recall, precision, "voc07") == pytest.approx(3 / 11)
    assert area_of_curve(recall + 1e-15, precision, "voc07") == pytest.approx(4 / 11)


@pytest.mark.parametrize("kind", KINDS)
def test_perfect_and_worst(kind: str) -> None:
    labels = np.array([True] * 3 + [False] * 7)
    assert average_precision(-np.arange(10.0), labels, kind) == pytest.approx(1)
    worst = {"area": 0.3, "voc07": 0.3, "steps": (1 / 8 + 2 / 9 + 3 / 10) / 3}
    assert average_precision(np.arange(10.0), labels, kind) == pytest.approx(worst[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_plain_loop(kind: str) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 30, 200):
        for share in (0.05, 0.5, 1.0):
            scores, labels = rng.permutation(n).astype(float), rng.random(n) < share
            labels[rng.integers(n)] = True
            assert average_precision(scores, labels, kind) == pytest.approx(slow([*scores], [*labels], kind), abs=1e-12)


@pytest.mark.parametrize("levels", [10_000_000, 20])
def test_steps_are_scikit_learns(levels: int) -> None:
    """Also with ties, which share a threshold."""
    rng = np.random.default_rng(1)
    for n in (3, 50, 1000):
        scores, labels = rng.integers(levels, size=n) / levels, rng.random(n) < 0.2
        labels[0] = True
        assert average_precision(scores, labels, "steps") == pytest.approx(average_precision_score(labels, scores))
        assert average_precision(scores, labels, "area") >= average_precision(scores, labels, "steps")


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_equal_scores_does_not_matter(kind: str) -> None:
    rng = np.random.default_rng(2)
    scores, labels = rng.integers(4, size=40).astype(float), rng.random(40) < 0.5
    there, back = (average_precision(scores[o], labels[o], kind) for o in (np.arange(40), np.arange(40)[::-1]))
    assert there == back


def test_a_curve_without_points_has_no_area() -> None:
    for kind in KINDS:
        np.testing.assert_array_equal(area_of_curve(np.empty((2, 0)), np.empty((2, 0)), kind), [0, 0])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([1.0, 2.0], [1], r"scores \(2,\) and labels \(1,\): give one label for each score"),
        ([1.0, np.nan], [1, 0], "scores: some are not finite"),
        ([1.0, 2.0], [0, 0], "labels: none of 2 is positive"),
    ],
)
def test_bad_input(scores: list[float], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        average_precision(np.array(scores), np.array(labels))
