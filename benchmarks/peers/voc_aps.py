"""VOC's detection metrics of made detections, both sides: ours, or detectron2's evaluator, from a folder of XML.

python -m benchmarks.peers.voc_aps FOLDER IMAGES CLASSES ours|detectron2 files|memory      FOLDER as voc_ap.py writes it
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.made_voc import made_detections, made_truth
from benchmarks.peers.turns import Turns
from evaluation.voc_detection import Detections, GroundTruth, gather, read_ground_truth, voc_detection


def ours(folder: Path, made: GroundTruth, found: Detections, from_files: bool) -> Callable[[], dict[str, float]]:
    per_image = per_image_of(found, len(made.images))
    truth = read_ground_truth(folder, classes=made.classes)

    def work() -> dict[str, float]:
        objects = read_ground_truth(folder, classes=made.classes) if from_files else truth
        return voc_detection(gather(per_image), objects).metrics

    return work


def of_detectron2(
    folder: Path, made: GroundTruth, found: Detections, from_files: bool
) -> Callable[[], dict[str, float]]:
    from detectron2.evaluation import pascal_voc_evaluation

    instances = in_instances(found, made)

    def work() -> dict[str, float]:
        if from_files:
            pascal_voc_evaluation.parse_rec.cache_clear()  # a program that evaluates once reads every file
        return by_detectron2(instances, made, folder, 2007)

    return work


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


def main(folder: Path, images: int, classes: int, who: str, source: str) -> None:
    turns = Turns()
    made = made_truth(images, classes=classes, seed=0)
    side = ours if who == "ours" else of_detectron2
    turns.play(side(folder, made, made_detections(made, seed=1), source == "files"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
