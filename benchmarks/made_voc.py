"""VOC without images: a seed goes in; objects, and detections that nobody's network has made, come out.

Detections are objects moved a little, copies of them, and boxes that hit nothing. For benchmarks and tests.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluation.voc_detection import Detections, GroundTruth


def made_truth(images: int, classes: int, seed: int, difficult: float = 0.15) -> GroundTruth:
    """Zero to six objects in each image of about 500x375 pixels."""
    rng = np.random.default_rng(seed)
    image = np.repeat(np.arange(images), rng.integers(0, 7, images))
    n = len(image)
    low = rng.integers(1, (400, 300), (n, 2))
    high = low + rng.integers(8, (100, 75), (n, 2))
    kind = rng.integers(classes, size=n)
    kind[:classes] = np.arange(classes)
    names = tuple(f"{i:06d}" for i in range(images))
    truth = np.concatenate([low, high], 1).astype(np.float64)
    hard = rng.random(n) < difficult
    hard[:classes] = False  # every class has an object that counts
    return GroundTruth(names, tuple(f"class{c}" for c in range(classes)), image, kind, truth, hard)


def made_detections(truth: GroundTruth, seed: int, noise: int = 10, levels: int | None = None) -> Detections:
    """In order of the images, as a detector goes through them. `levels` makes scores equal."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(truth.image_M)), rng.integers(0, 4, len(truth.image_M)))
    size = truth.box_M4[of, 2:] - truth.box_M4[of, :2]
    near = truth.box_M4[of] - [1, 1, 0, 0] + rng.normal(0, 0.12, (len(of), 4)) * np.tile(size, 2)
    other = rng.uniform(0, 300, (noise * len(truth.images), 4))
    other[:, 2:] = other[:, :2] + rng.uniform(5, 150, (len(other), 2))
    image = np.concatenate([truth.image_M[of], rng.integers(len(truth.images), size=len(other))])
    kind = np.concatenate([truth.class_M[of], rng.integers(len(truth.classes), size=len(other))])
    score = np.concatenate([rng.beta(3, 2, len(of)), rng.beta(1, 4, len(other))])
    score = score if levels is None else np.ceil(score * levels) / levels
    order = np.argsort(image, kind="stable")
    boxes = np.concatenate([near, other])[order].astype(np.float32)
    return Detections(image[order], kind[order], boxes, score[order].astype(np.float32))


def write_year(folder: Path, truth: GroundTruth) -> Path:
    """Lists and XML; no images are needed."""
    (folder / "Annotations").mkdir(parents=True)
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    (folder / "ImageSets" / "Main" / "test.txt").write_text("".join(f"{name}\n" for name in truth.images))
    things: list[list[str]] = [[] for _ in truth.images]
    for i, c, box, hard in zip(truth.image_M, truth.class_M, truth.box_M4, truth.difficult_M, strict=True):
        sides = "".join(f"<{s}>{v:.0f}</{s}>" for s, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
        things[i].append(
            f"<object><name>{truth.classes[c]}</name><pose>Left</pose><truncated>0</truncated>"
            f"<difficult>{hard:d}</difficult><bndbox>{sides}</bndbox></object>"
        )
    for name, objects in zip(truth.images, things, strict=True):
        (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{''.join(objects)}</annotation>")
    return folder
