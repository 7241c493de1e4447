"""Evaluators, as ratios in one run: few-shot episodes and linear classifiers against plain loops.

python benchmarks/evaluation.py --json FILE      some minutes; --only fewshot,linear chooses
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks import fewshot_episodes, linear_probe
from benchmarks.harness import Section, main

SECTIONS: dict[str, Section] = {
    "fewshot": fewshot_episodes.measure,
    "linear": linear_probe.measure,
}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
