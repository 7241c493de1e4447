"""Our VOC metrics against pycocotools and torchmetrics, and detectron2's evaluator where that is installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.made_voc import made_detections, made_truth, write_year
from benchmarks.peers.voc_aps import by_detectron2, in_instances
from evaluation.voc_detection import THRESHOLDS, Detections, GroundTruth, read_ground_truth, voc_detection

DEVKIT = Path(__file__).resolve().parents[3] / "shared" / "data" / "VOCdevkit"
needs_voc = pytest.mark.skipif(not DEVKIT.exists(), reason="../shared/data is not here")
made_and_real = pytest.mark.parametrize("real", [False, pytest.param(True, marks=needs_voc)], ids=["made", "real"])


@pytest.mark.parametrize(("kind", "year"), [("voc07", 2007), ("area", 2012)])
@pytest.mark.parametrize("levels", [None, 12])
def test_detectron2_on_made_objects(kind: Any, year: int, levels: int | None, tmp_path: Path) -> None:
    pytest.importorskip("detectron2")
    made = made_truth(images=120, classes=4, seed=3)
    folder = write_year(tmp_path / "VOC", made)
    truth = read_ground_truth(folder, classes=made.classes)
    np.testing.assert_array_equal(truth.box_M4, made.box_M4)
    found = made_detections(truth, seed=4, levels=levels)
    expected = by_detectron2(in_instances(found, truth), truth, folder, year)
    score = voc_detection(found, truth, kind)
    assert 5 < expected["ap"] < 60
    assert {k: score.metrics[k] for k in expected} == pytest.approx(expected, abs=1e-9)


@needs_voc
@pytest.mark.parametrize(("kind", "year"), [("voc07", 2007), ("area", 2012)])
def test_detectron2_on_real_objects(kind: Any, year: int) -> None:
    pytest.importorskip("detectron2")
    truth = read_ground_truth(DEVKIT / "VOC2007")
    found = made_detections(truth, seed=5)
    expected = by_detectron2(in_instances(found, truth), truth, DEVKIT / "VOC2007", year)
    score = voc_detection(found, truth, kind)
    assert {k: score.metrics[k] for k in expected} == pytest.approx(expected, abs=1e-9)


def apart(seed: int, real: bool) -> tuple[GroundTruth, Detections]:
    """One object at most of a class in an image and none difficult: here all evaluators match alike."""
    truth = read_ground_truth(DEVKIT / "VOC2007") if real else made_truth(150, classes=3, seed=seed, difficult=0)
    place = truth.image_M * len(truth.classes) + truth.class_M
    counts = np.flatnonzero(~truth.difficult_M)
    keep = np.sort(counts[np.unique(place[counts], return_index=True)[1]])
    truth = GroundTruth(
        truth.images,
        truth.classes,
        truth.image_M[keep],
        truth.class_M[keep],
        truth.box_M4[keep],
        truth.difficult_M[keep],
    )
    return truth, made_detections(truth, seed + 1, noise=4)


def inclusive(found: Detections) -> np.ndarray:
    """In VOC's pixels, and one pixel more at the end: so evaluators without VOC's + 1 see the same widths."""
    return found.box_N4.astype(np.float64) + 1


@made_and_real
def test_pycocotools_at_11_recalls_where_objects_lie_apart(real: bool) -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, found = apart(10, real)
    coco = COCO()
    wide = truth.box_M4 + np.array([0, 0, 1, 1])
    things = zip(truth.image_M, truth.class_M, wide, strict=True)
    coco.dataset = {
        "images": [{"id": i + 1} for i in range(len(truth.images))],
        "categories": [{"id": c + 1} for c in range(len(truth.classes))],
        "annotations": [
            {"id": k + 1, "image_id": int(i) + 1, "category_id": int(c) + 1, "bbox": xywh(b), "area": 1.0, "iscrowd": 0}
            for k, (i, c, b) in enumerate(things)
        ],
    }
    coco.createIndex()
    rows = zip(found.image_N, found.class_N, inclusive(found), found.score_N, strict=True)
    results = [
        {"image_id": int(i) + 1, "category_id": int(c) + 1, "bbox": xywh(b), "score": float(s)} for i, c, b, s in rows
    ]
    evaluator = COCOeval(coco, coco.loadRes(results), "bbox")
    evaluator.params.recThrs = np.arange(0.0, 1.1, 0.1)
    evaluator.params.iouThrs = THRESHOLDS
    evaluator.evaluate()
    evaluator.accumulate()
    precision_TRKAM = evaluator.eval["precision"]
    ap_T = 100 * precision_TRKAM[:, :, :, 0, -1].mean((1, 2))
    score = voc_detection(found, truth, rounded=False).metrics
    assert [score["ap50"], score["ap75"], score["ap"]] == pytest.approx([ap_T[0], ap_T[5], ap_T.mean()], abs=1e-9)


@made_and_real
def test_torchmetrics_at_11_recalls_where_objects_lie_apart(real: bool) -> None:
    import torch
    from torchmetrics.detection import MeanAveragePrecision

    truth, found = apart(20, real)
    metric = MeanAveragePrecision(rec_thresholds=np.arange(0.0, 1.1, 0.1).tolist(), class_metrics=True)
    wide = truth.box_M4 + np.array([0, 0, 1, 1])
    for i in range(len(truth.images)):
        mine, things = found.image_N == i, truth.image_M == i
        boxes, labels = torch.from_numpy(inclusive(found)[mine]), torch.from_numpy(found.class_N[mine])
        given = {"boxes": boxes, "labels": labels, "scores": torch.from_numpy(found.score_N[mine])}
        target = {"boxes": torch.from_numpy(wide[things]), "labels": torch.from_numpy(truth.class_M[things])}
        metric.update([given], [target])
    result = metric.compute()
    score = voc_detection(found, truth, rounded=False)
    expected = [100 * float(result[k]) for k in ("map_50", "map_75", "map")]
    assert [score.metrics[k] for k in ("ap50", "ap75", "ap")] == pytest.approx(expected, abs=1e-3)
    by_class = [row["ap"] for row in score.details["classes"].values()]
    assert by_class == pytest.approx((100 * result["map_per_class"]).tolist(), abs=1e-3)


def xywh(box: np.ndarray) -> list[float]:
    return [float(v) for v in (box[0], box[1], box[2] - box[0], box[3] - box[1])]
