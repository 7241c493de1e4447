"""Evaluators, as ratios in one run: few-shot, linear, SVM against plain loops or one core, AP against detectron2.

python benchmarks/evaluation.py --json FILE      some minutes; --only fewshot,linear,svm,voc_ap chooses
python benchmarks/evaluation.py --detectron2-python PYTHON      where this Python does not have it
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks import fewshot_episodes, linear_probe, voc_ap, voc_svm
from benchmarks.harness import Section, main, on_ray

SECTIONS: dict[str, Section] = {
    "fewshot": fewshot_episodes.measure,
    "linear": linear_probe.measure,
    "linear_short": linear_probe.short,
    "svm": on_ray(voc_svm.measure),
    "voc_ap": voc_ap.measure,
}


if __name__ == "__main__":
    main(__doc__, SECTIONS, voc_ap.options, voc_ap.GIVEN)
