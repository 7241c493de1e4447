"""VOC's detection metrics against detectron2's evaluator: the same detections and folder go in, AP50 to AP come out."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Result, paired
from benchmarks.made_voc import made_detections, made_truth, write_year
from benchmarks.sides import Side, in_turns

IMAGES, CLASSES = 4952, 20  # of VOC2007 test
GIVEN = argparse.Namespace()  # what the command line says of detectron2
SOURCES = {"files": "from the files", "memory": "objects in memory"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detectron2-python", help="Python that has detectron2 (default: this one)")


def measure(small: bool) -> list[Result]:
    """As people call both: from what a network gives for each image, and from a folder of XML."""
    python = getattr(GIVEN, "detectron2_python", None) or sys.executable
    known = subprocess.run([python, "-c", "import torch, detectron2.evaluation"], capture_output=True)
    if known.returncode:
        print(f"voc_ap: left out, {python} cannot import detectron2; --detectron2-python names another")
        return []
    images, repeats = (60, 1) if small else (IMAGES, 3)
    made = made_truth(images, classes=CLASSES, seed=0)
    count = len(made_detections(made, seed=1).score_N)
    rows = []
    with tempfile.TemporaryDirectory() as path:
        folder = write_year(Path(path) / "VOC2007", made)
        for source, told in SOURCES.items():
            ours, theirs = (
                Side("voc_aps", folder, images, CLASSES, who, source, python=of)
                for who, of in (("ours", None), ("detectron2", python))
            )
            pairs, (mine, other) = in_turns(ours, theirs, repeats)
            rows.append(paired(f"AP of {count} detections in {images} images: detectron2 / ours, {told}", pairs, 5.0))
            off = max(abs(mine[name] - value) for name, value in other.items())
            assert off < 1e-9, (mine, other)
    return rows
