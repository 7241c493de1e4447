"""Training, as ratios in one run: Ray Train workers against a bare loop, two workers against one, bow against labels.

python benchmarks/train.py --json FILE      a few minutes; --only worker,workers,bow chooses
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks import bow_step, training_workers
from benchmarks.harness import Section, main, on_ray

SECTIONS: dict[str, Section] = {
    "worker": on_ray(training_workers.one_against_bare),
    "workers": on_ray(training_workers.two_against_one, cpus=2 * training_workers.CORES),
    "bow": bow_step.measure,
}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
