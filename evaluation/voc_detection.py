"""VOC's detection metrics: detections and ground truth go in; AP50, AP75 and AP come out, over classes and for each.

The conventions are those of `PascalVOCDetectionEvaluator` of detectron2, by which the paper's numbers were made:

- Boxes of the ground truth are VOC's: the first pixel is 1 and the last one belongs to the object, so that a box is
  xmax - xmin + 1 pixels wide. Detections come as networks give them, from 0 and exclusive: xmin and ymin get 1 added.
- Down the ranking of a class, a detection is compared with the one object of its image that it overlaps most. If the
  overlap is above the threshold, it finds the object, or is wrong where that was found before; it never gets another.
- One that finds a difficult object counts neither way, and difficult objects are not missed.
- detectron2 passes detections through text, with scores of 3 decimals and coordinates of 1. `rounded` does the same to
  the bit, and breaks the many ties in the order that `numpy.argsort` does there. Without it nothing is rounded, and
  equal scores keep the order in which they came.

One thing differs: a class without objects has no AP, and is left out of the mean. detectron2 counts it as 0, and the
area as nan; in VOC2007 every class has objects.

pycocotools and torchmetrics match otherwise (a detection whose best object is taken may get the next one) and have no
difficult objects. Where objects lie apart and none is difficult they agree, given the same recalls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.images.sources.voc import CLASSES, parse_annotation
from evaluation.average_precision import MEANING, Floats, Kind, area_of_curve
from evaluation.score import Score

Numbers = NDArray[np.int64]
THRESHOLDS = np.arange(50, 100, 5) / 100  # of the overlap: 0.5, 0.55, ..., 0.95


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The objects of some images; `image_M` and `class_M` are numbers in the two lists."""

    images: tuple[str, ...]
    classes: tuple[str, ...]
    image_M: Numbers
    class_M: Numbers
    box_M4: Floats  # VOC's: xmin, ymin, xmax, ymax
    difficult_M: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Detections:
    """What was found; `image_N` and `class_N` are numbers in the lists of the ground truth."""

    image_N: Numbers
    class_N: Numbers
    box_N4: NDArray[np.float32]  # as networks give them: from 0, xmax and ymax exclusive
    score_N: NDArray[np.float32]


def gather(found: Iterable[tuple[int, Any, Any, Any]]) -> Detections:
    """From (image, boxes [n, 4], classes [n], scores [n]) of each image in turn: arrays, or tensors on the CPU."""
    rows = [(int(i), np.asarray(b, np.float32).reshape(-1, 4), np.asarray(c), np.asarray(s)) for i, b, c, s in found]
    if not rows:
        return Detections(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 4), np.float32), np.empty(0, "f4"))
    return Detections(
        np.repeat([i for i, *_ in rows], [len(b) for _, b, *_ in rows]).astype(np.int64),
        np.concatenate([c for _, _, c, _ in rows]).astype(np.int64),
        np.concatenate([b for _, b, *_ in rows]),
        np.concatenate([s for *_, s in rows]).astype(np.float32),
    )


def ground_truth(
    images: Sequence[str], annotations: Sequence[Mapping[str, Any]], classes: Sequence[str]
) -> GroundTruth:
    """From annotations as the reader of VOC gives them: {"boxes": [{"class", "box", "difficult"}, ...]}."""
    number = {name: i for i, name in enumerate(classes)}
    rows = [
        (i, number.get(thing["class"], -1), *thing["box"], thing["difficult"])
        for i, annotation in enumerate(annotations)
        for thing in annotation["boxes"]
    ]
    table = np.array(rows, np.float64).reshape(-1, 7)
    if (table[:, 1] < 0).any():
        first = int(table[np.argmax(table[:, 1] < 0), 0])
        unknown = next(b["class"] for b in annotations[first]["boxes"] if b["class"] not in number)
        raise ValueError(f"{images[first]}: has an object of class {unknown!r}; there are {', '.join(classes)}")
    image_M, class_M = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    return GroundTruth(tuple(images), tuple(classes), image_M, class_M, table[:, 2:6], table[:, 6] == 1)


def read_ground_truth(folder: str | Path, image_set: str = "test", classes: Sequence[str] = CLASSES) -> GroundTruth:
    """Of a year's folder, such as VOCdevkit/VOC2007; images are named as in the list of the set."""
    root = Path(folder)
    names = (root / "ImageSets" / "Main" / f"{image_set}.txt").read_text().split()
    annotations = [parse_annotation((root / "Annotations" / f"{name}.xml").read_bytes()) for name in names]
    return ground_truth(names, annotations, classes)


def voc_detection(found: Detections, truth: GroundTruth, kind: Kind = "voc07", rounded: bool = True) -> Score:
    """`ap50`, `ap75` and `ap`, the mean over ten thresholds, in percent by one definition; the same by the other."""
    _check(found, truth)
    other: Kind = "area" if kind == "voc07" else "voc07"
    boxes_N4, score_N = _in_voc_pixels(found, rounded)
    by_class: dict[str, dict[str, Any]] = {}
    for c, name in enumerate(truth.classes):
        mine, things = found.class_N == c, np.flatnonzero(truth.class_M == c)
        recall_TN, precision_TN = curves(boxes_N4[mine], score_N[mine], found.image_N[mine], truth, things, rounded)
        row: dict[str, Any] = {"detections": int(mine.sum()), "difficult": int(truth.difficult_M[things].sum())}
        row["objects"] = len(things) - row["difficult"]
        if row["objects"]:
            row |= _three(area_of_curve(recall_TN, precision_TN, kind))
            row |= {f"{k}_{other}": v for k, v in _three(area_of_curve(recall_TN, precision_TN, other)).items()}
            row["recall50"] = 100 * float(recall_TN[0, -1]) if mine.any() else 0.0
        by_class[name] = row
    scored = [row for row in by_class.values() if row["objects"]]
    if not scored:
        raise ValueError(f"ground truth: {len(truth.images)} images have no object that counts; use annotated images")
    names = [m if k == "" else f"{m}_{k}" for k in ("", other) for m in ("ap50", "ap75", "ap")]
    metrics = {name: float(np.mean([row[name] for row in scored])) for name in names}
    absent = [name for name, row in by_class.items() if not row["objects"]]
    return Score(metrics, {"classes": by_class, "classes_without_objects": absent})


def definition(kind: Kind = "voc07", rounded: bool = True) -> dict[str, str]:
    """For a protocol card."""
    return {
        "metric": f"AP in percent, {MEANING[kind]}, mean over classes; ap is the mean over IoU 0.5:0.05:0.95",
        "matching": "each detection with the object it overlaps most, above the threshold, each object once",
        "difficult": "ignored: neither to be found nor wrong when found",
        "boxes": "VOC's inclusive pixels, width xmax - xmin + 1",
        "rounding": "scores to 3 decimals, coordinates to 1, as detectron2's text files" if rounded else "none",
    }


def curves(
    boxes_N4: Floats, score_N: Floats, image_N: Numbers, truth: GroundTruth, things: Numbers, as_detectron2: bool
) -> tuple[Floats, Floats]:
    """Recall and precision [thresholds, N] down the ranking of one class, whose objects are `things`."""
    order = np.argsort(-score_N) if as_detectron2 else np.argsort(-score_N, kind="stable")
    things = things[np.argsort(truth.image_M[things], kind="stable")]
    overlap_N, best_N = best_overlaps(boxes_N4[order], image_N[order], truth.box_M4[things], truth.image_M[things])
    difficult_M = truth.difficult_M[things]
    right_TN = np.zeros((len(THRESHOLDS), len(order)))
    wrong_TN = np.zeros_like(right_TN)
    for right, wrong, threshold in zip(right_TN, wrong_TN, THRESHOLDS, strict=True):
        above = overlap_N > threshold
        finds = np.flatnonzero(above)[~difficult_M[best_N[above]]]
        finder_M = np.full(len(things), -1)
        finder_M[best_N[finds[::-1]]] = finds[::-1]  # the last one written is the first of the ranking
        wrong[finds] = 1
        wrong[~above] = 1
        first = finder_M[finder_M >= 0]
        right[first], wrong[first] = 1, 0
    right_TN, wrong_TN = right_TN.cumsum(1), wrong_TN.cumsum(1)
    precision_TN = right_TN / np.maximum(right_TN + wrong_TN, np.finfo(np.float64).eps)  # 0 after difficult ones only
    return right_TN / max(1, int((~difficult_M).sum())), precision_TN


def best_overlaps(
    box_N4: Floats, image_N: Numbers, thing_M4: Floats, image_M: Numbers
) -> tuple[Floats, NDArray[np.intp]]:
    """Each detection's largest overlap with an object of its image, and the first such object; -inf and -1 if none.

    Objects must be in order of their images. All pairs are made at once: there are few per detection.
    """
    start_N, stop_N = np.searchsorted(image_M, image_N), np.searchsorted(image_M, image_N, side="right")
    overlap_N, best_N = np.full(len(box_N4), -np.inf), np.full(len(box_N4), -1)
    some = np.flatnonzero(stop_N > start_N)
    if not len(some):
        return overlap_N, best_N
    count = (stop_N - start_N)[some]
    begin = np.cumsum(count) - count
    pair_thing = np.arange(count.sum()) + np.repeat(start_N[some] - begin, count)
    x0, y0, x1, y1 = box_N4[np.repeat(some, count)].T
    u0, v0, u1, v1 = thing_M4[pair_thing].T
    width = np.maximum(np.minimum(x1, u1) - np.maximum(x0, u0) + 1, 0)
    height = np.maximum(np.minimum(y1, v1) - np.maximum(y0, v0) + 1, 0)
    common = width * height
    overlap = common / ((x1 - x0 + 1) * (y1 - y0 + 1) + (u1 - u0 + 1) * (v1 - v0 + 1) - common)
    overlap_N[some] = np.maximum.reduceat(overlap, begin)
    is_best = overlap == np.repeat(overlap_N[some], count)
    best_N[some] = np.minimum.reduceat(np.where(is_best, pair_thing, len(thing_M4)), begin)
    return overlap_N, best_N


def _in_voc_pixels(found: Detections, rounded: bool) -> tuple[Floats, Floats]:
    box_N4 = found.box_N4.astype(np.float32)
    box_N4[:, :2] += 1
    boxes, scores = box_N4.astype(np.float64), found.score_N.astype(np.float32).astype(np.float64)
    # Single precision times 1000 is exact in double precision, so that this rounds as printing does.
    return (np.rint(boxes * 10) / 10, np.rint(scores * 1000) / 1000) if rounded else (boxes, scores)


def _three(ap_T: Floats) -> dict[str, float]:
    return {"ap50": 100 * float(ap_T[0]), "ap75": 100 * float(ap_T[5]), "ap": 100 * float(ap_T.mean())}


def _check(found: Detections, truth: GroundTruth) -> None:
    n = len(found.score_N)
    shapes = (found.image_N.shape, found.class_N.shape, found.box_N4.shape)
    if shapes != ((n,), (n,), (n, 4)):
        raise ValueError(f"detections: images, classes and boxes are {shapes} for {n} scores; give one of each")
    for what, numbers, known in (("image", found.image_N, truth.images), ("class", found.class_N, truth.classes)):
        if n and not (numbers.min() >= 0 and numbers.max() < len(known)):
            bad = numbers[(numbers < 0) | (numbers >= len(known))][0]
            raise ValueError(f"detections: {what} {bad} is not in the ground truth, which has 0..{len(known) - 1}")
    if not (np.isfinite(found.box_N4).all() and np.isfinite(found.score_N).all()):
        raise ValueError("detections: some boxes or scores are not finite; the detector has diverged")
