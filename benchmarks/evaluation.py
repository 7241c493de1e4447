"""Evaluators, as ratios in one run: VOC07 SVMs on all cores, VOC's detection metrics against detectron2's.

python benchmarks/evaluation.py --json FILE      minutes; --only svm,voc_ap chooses
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks import voc_ap, voc_svm
from benchmarks.harness import Section, main, on_ray

SECTIONS: dict[str, Section] = {
    "svm": on_ray(voc_svm.measure),
    "voc_ap": voc_ap.measure,
}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
