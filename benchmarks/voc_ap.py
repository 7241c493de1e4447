"""VOC's detection metrics against detectron2's evaluator: the same detections and folder go in, AP50 to AP come out."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Result, compare
from benchmarks.made_voc import made_detections, made_truth, write_year
from evaluation.voc_detection import Detections, GroundTruth, gather, read_ground_truth, voc_detection

IMAGES = 4952  # of VOC2007 test


def measure(small: bool) -> list[Result]:
    """As people call both: from what a network gives for each image, and from a folder of XML."""
    if importlib.util.find_spec("detectron2") is None:
        print("voc_ap: left out, detectron2 is not installed")
        return []
    from detectron2.evaluation import pascal_voc_evaluation

    images, repeats = (60, 2) if small else (IMAGES, 3)
    made = made_truth(images, classes=20, seed=0)
    found = made_detections(made, seed=1)
    per_image, instances = per_image_of(found, images), in_instances(found, made)
    with tempfile.TemporaryDirectory() as path:
        folder = write_year(Path(path) / "VOC2007", made)
        truth = read_ground_truth(folder, classes=made.classes)
        results: dict[str, dict[str, float]] = {}

        def ours() -> None:
            results["ours"] = voc_detection(gather(per_image), read_ground_truth(folder, classes=made.classes)).metrics

        def other() -> None:
            pascal_voc_evaluation.parse_rec.cache_clear()  # a program that evaluates once reads every file
            results["other"] = by_detectron2(instances, made, folder, 2007)

        def ours_again() -> None:
            voc_detection(gather(per_image), truth)

        def other_again() -> None:
            by_detectron2(instances, made, folder, 2007)

        name = f"AP of {len(found.score_N)} detections in {images} images: detectron2 / ours"
        rows = [
            compare(f"{name}, from the files", ours, other, 5.0, repeats=repeats, seconds=0),
            compare(f"{name}, objects in memory", ours_again, other_again, 5.0, repeats=repeats, seconds=0),
        ]
    off = max(abs(results["ours"][k] - v) for k, v in results["other"].items())
    assert off < 1e-9, results
    return rows


def per_image_of(found: Detections, images: int) -> list[tuple[int, Any, Any, Any]]:
    """(image, boxes, classes, scores) of each image."""
    rows = [np.flatnonzero(found.image_N == i) for i in range(images)]
    return [(i, found.box_N4[row], found.class_N[row], found.score_N[row]) for i, row in enumerate(rows)]


def in_instances(found: Detections, truth: GroundTruth) -> list[Any]:
    """As a network of detectron2 gives them."""
    import torch
    from detectron2.structures import Boxes, Instances

    made = []
    for _, boxes, classes, scores in per_image_of(found, len(truth.images)):
        fields = {"scores": torch.from_numpy(scores), "pred_classes": torch.from_numpy(classes)}
        made.append(Instances((375, 500), pred_boxes=Boxes(torch.from_numpy(boxes)), **fields))
    return made


def by_detectron2(instances: Sequence[Any], truth: GroundTruth, folder: Path, year: int) -> dict[str, float]:
    """Its evaluator on these detections. The year decides between 11 points (2007) and the area (2012)."""
    from detectron2.data import MetadataCatalog
    from detectron2.evaluation import PascalVOCDetectionEvaluator

    name = f"{folder}-{year}"
    MetadataCatalog.get(name).set(dirname=str(folder), split="test", year=year, thing_classes=[*truth.classes])
    evaluator = PascalVOCDetectionEvaluator(name)
    evaluator.reset()
    for image, found in zip(truth.images, instances, strict=True):
        evaluator.process([{"image_id": image}], [{"instances": found}])
    result = evaluator.evaluate()["bbox"]
    return {"ap50": result["AP50"], "ap75": result["AP75"], "ap": result["AP"]}
