"""VOC's detection metrics: by hand, against a plain loop, and against the evaluators of others where they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.made_voc import made_detections, made_truth
from bownet.images.sources.voc import CLASSES
from evaluation.average_precision import area_of_curve
from evaluation.voc_detection import (
    THRESHOLDS,
    Detections,
    GroundTruth,
    best_overlaps,
    gather,
    ground_truth,
    read_ground_truth,
    voc_detection,
)

DEVKIT = Path(__file__).resolve().parents[3] / "shared" / "data" / "VOCdevkit"
needs_voc = pytest.mark.skipif(not DEVKIT.exists(), reason="../shared/data is not here")


def truth_of(*things: tuple[int, str, list[int], bool], images: int = 2) -> GroundTruth:
    rows: list[dict[str, Any]] = [{"boxes": []} for _ in range(images)]
    for image, name, box, difficult in things:
        rows[image]["boxes"].append({"class": name, "box": box, "difficult": difficult})
    return ground_truth([f"{i}" for i in range(images)], rows, ("cat", "dog"))


def found(*rows: tuple[int, int, list[float], float]) -> Detections:
    return gather((image, [box], [kind], [score]) for image, kind, box, score in rows)


def slow(detections: Detections, truth: GroundTruth, kind: str, rounded: bool) -> dict[str, float]:
    """One detection after the other, for each class and threshold."""
    boxes = detections.box_N4 + np.array([1, 1, 0, 0], np.float32)
    lines = [
        [float(f"{s:.3f}"), *(float(f"{v:.1f}") for v in box)] if rounded else [float(s), *map(float, box)]
        for s, box in zip(detections.score_N.tolist(), boxes.tolist(), strict=True)
    ]
    ap = {t: [] for t in THRESHOLDS}
    for c in range(len(truth.classes)):
        mine = [i for i in range(len(lines)) if detections.class_N[i] == c]
        scores = np.array([lines[i][0] for i in mine])
        ranking = np.argsort(-scores) if rounded else np.argsort(-scores, kind="stable")
        objects = [j for j in range(len(truth.class_M)) if truth.class_M[j] == c]
        count = sum(not truth.difficult_M[j] for j in objects)
        for t in THRESHOLDS:
            taken, right, wrong, recall, precision = set(), 0, 0, [], []
            for r in ranking:
                i = mine[r]
                here = [j for j in objects if truth.image_M[j] == detections.image_N[i]]
                overlaps = [iou(lines[i][1:], truth.box_M4[j].tolist()) for j in here]
                best = int(np.argmax(overlaps)) if here else -1
                if not here or overlaps[best] <= t:
                    wrong += 1
                elif not truth.difficult_M[here[best]]:
                    right, wrong = (right, wrong + 1) if here[best] in taken else (right + 1, wrong)
                    taken.add(here[best])
                recall.append(right / count)
                precision.append(right / (right + wrong) if right + wrong else 0.0)
            ap[t].append(float(area_of_curve(np.array(recall), np.array(precision), kind)))
    mean = {t: 100 * float(np.mean(values)) for t, values in ap.items()}
    return {"ap50": mean[0.5], "ap75": mean[0.75], "ap": float(np.mean([*mean.values()]))}


def iou(a: list[float], b: list[float]) -> float:
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]) + 1)
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]) + 1)
    area = (a[2] - a[0] + 1) * (a[3] - a[1] + 1) + (b[2] - b[0] + 1) * (b[3] - b[1] + 1)
    return w * h / (area - w * h)


def test_by_hand() -> None:
    """Two cats. The ranking: right, the same again, a difficult one, nothing, the second cat at an overlap of 0.6."""
    truth = truth_of(
        (0, "cat", [11, 11, 20, 20], False), (1, "cat", [1, 1, 10, 10], False), (1, "cat", [31, 31, 40, 40], True)
    )
    things = found(
        (0, 0, [10, 10, 20, 20], 0.9),
        (0, 0, [10, 10, 20, 20], 0.8),
        (1, 0, [30, 30, 40, 40], 0.7),
        (1, 0, [60, 60, 70, 70], 0.6),
        (1, 0, [0, 0, 10, 6], 0.5),
    )
    score = voc_detection(things, truth)
    # at 0.5: precisions 1, 1/2, 1/2, 1/3, 1/2; the second half of the recall has 1/2
    assert score.metrics["ap50"] == pytest.approx(100 * (6 * 1 + 5 * 0.5) / 11)
    assert score.metrics["ap50_area"] == pytest.approx(100 * (0.5 + 0.25))
    # at 0.75 the second cat is not found: the envelope is 1 up to half of the recall, and 0 beyond
    assert score.metrics["ap75"] == pytest.approx(100 * 6 / 11)
    assert score.metrics["ap75_area"] == pytest.approx(50)
    # an overlap of 0.6 is above 0.5 and 0.55, and not above 0.6
    assert score.metrics["ap_area"] == pytest.approx((2 * 75 + 8 * 50) / 10)
    cats = score.details["classes"]["cat"]
    assert (cats["detections"], cats["objects"], cats["difficult"], cats["recall50"]) == (5, 2, 1, 100)
    assert score.details["classes_without_objects"] == ["dog"]


def test_a_detection_is_compared_with_one_object_only() -> None:
    """The second detection overlaps both cats, the first one more: that is taken, and the other one is not found."""
    truth = truth_of((0, "cat", [1, 1, 10, 10], False), (0, "cat", [3, 1, 12, 10], False))
    things = found((0, 0, [0, 0, 10, 10], 0.9), (0, 0, [0.9, 0, 10.9, 10], 0.8))
    assert voc_detection(things, truth).details["classes"]["cat"]["recall50"] == 50


def test_only_the_class_of_the_object_counts_and_no_detections_are_nothing_found() -> None:
    truth = truth_of((0, "cat", [1, 1, 10, 10], False), (1, "dog", [1, 1, 10, 10], False))
    score = voc_detection(found((0, 1, [0, 0, 10, 10], 0.9), (1, 1, [0, 0, 10, 10], 0.8)), truth)
    assert score.details["classes"]["cat"]["ap50"] == 0
    assert score.details["classes"]["dog"]["ap50"] == pytest.approx(50)
    assert score.metrics["ap50"] == pytest.approx(25)
    assert voc_detection(gather([]), truth).metrics["ap"] == 0


@pytest.mark.parametrize("kind", ["voc07", "area"])
@pytest.mark.parametrize("rounded", [True, False])
def test_agrees_with_the_plain_loop(kind: Any, rounded: bool) -> None:
    truth = made_truth(images=25, classes=3, seed=0)
    things = made_detections(truth, seed=1, levels=None if rounded else 7)
    score = voc_detection(things, truth, kind, rounded)
    expected = slow(things, truth, kind, rounded)
    assert {k: score.metrics[k] for k in expected} == pytest.approx(expected, abs=1e-10)
    other = "area" if kind == "voc07" else "voc07"
    again = voc_detection(things, truth, other, rounded)
    assert all(score.metrics[f"{k}_{other}"] == again.metrics[k] for k in expected)


def test_rounding_is_that_of_printing() -> None:
    """0.0005 as a float32 is a little more than half a thousandth; 0.25 is exactly half of a tenth."""
    rng = np.random.default_rng(0)
    from evaluation.voc_detection import _in_voc_pixels

    boxes = np.concatenate([rng.uniform(-9, 500, (5000, 4)), rng.integers(0, 4000, (5000, 4)) / 8]).astype(np.float32)
    score = np.concatenate([rng.random(9000), np.arange(1000) / 1000 + 0.0005]).astype(np.float32)
    n = np.zeros(len(score), np.int64)
    got_boxes, got_scores = _in_voc_pixels(Detections(n, n, boxes, score), rounded=True)
    moved = boxes + np.array([1, 1, 0, 0], np.float32)
    np.testing.assert_array_equal(got_boxes, [[float(f"{v:.1f}") for v in box] for box in moved])
    np.testing.assert_array_equal(got_scores, [float(f"{s:.3f}") for s in score.tolist()])


def test_overlaps_of_an_image_without_objects() -> None:
    box = np.array([[1.0, 1, 10, 10], [1, 1, 10, 10], [1, 1, 5, 10]])
    overlap, best = best_overlaps(box, np.array([3, 1, 3]), box[[0, 0, 2]], np.array([0, 3, 3]))
    np.testing.assert_allclose(overlap, [1, -np.inf, 1])
    assert best.tolist() == [1, -1, 2]


def test_bad_input() -> None:
    truth = truth_of((0, "cat", [1, 1, 10, 10], False))
    good = [0.0, 0.0, 10.0, 10.0]
    for things, message in (
        (found((5, 0, good, 0.9)), r"image 5 is not in the ground truth, which has 0\.\.1"),
        (found((0, 2, good, 0.9)), r"class 2 is not in the ground truth, which has 0\.\.1"),
        (found((0, 0, good, np.nan)), "not finite"),
        (Detections(np.zeros(2, int), np.zeros(1, int), np.zeros((1, 4), "f4"), np.zeros(1, "f4")), "give one of each"),
    ):
        with pytest.raises(ValueError, match=message):
            voc_detection(things, truth)
    with pytest.raises(ValueError, match="0: has an object of class 'cow'; there are cat, dog"):
        truth_of((0, "cow", [1, 1, 10, 10], False))
    with pytest.raises(ValueError, match="2 images have no object that counts"):
        voc_detection(gather([]), truth_of((0, "cat", [1, 1, 10, 10], True)))


@needs_voc
def test_real_objects_found_as_they_are() -> None:
    truth = read_ground_truth(DEVKIT / "VOC2007")
    assert (len(truth.images), truth.classes) == (150, CLASSES)
    perfect = (truth.box_M4 - [1, 1, 0, 0]).astype(np.float32)
    things = Detections(truth.image_M, truth.class_M, perfect, np.ones(len(perfect), np.float32))
    score = voc_detection(things, truth)
    assert score.metrics == pytest.approx(dict.fromkeys(score.metrics, 100.0))
    assert sum(row["objects"] + row["difficult"] for row in score.details["classes"].values()) == len(perfect)
    np.testing.assert_array_equal(truth.box_M4.min(0)[:2], [1, 1])
