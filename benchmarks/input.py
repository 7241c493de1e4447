"""Everything that feeds the model, as ratios in one run: perturbation, sharding, training input, streaming.

python benchmarks/input.py --json FILE      a few minutes; --only perturb,kornia,shard,train,stream chooses
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks import perturbation, sharding, streaming, training_input
from benchmarks.harness import Section, main, on_ray

SECTIONS: dict[str, Section] = {
    "perturb": perturbation.measure,
    "kornia": perturbation.measure_kornia,
    "shard": on_ray(sharding.measure),
    "train": training_input.measure,
    "stream": on_ray(streaming.measure, streaming.OBJECT_STORE),
}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
