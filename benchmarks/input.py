"""Everything that feeds the model, as ratios in one run: perturbation, sharding, training input, streaming.

python benchmarks/input.py --json FILE      a few minutes; --only perturb,shard,train,stream chooses
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks import perturbation, sharding, streaming, training_input
from benchmarks.harness import Result, report, run_as_worker
from pipelines.machine import Machine, Resources, connect, survey


def on_ray(
    measure: Callable[[bool, Machine], list[Result]], object_store: int | None = None
) -> Callable[..., list[Result]]:
    def run(small: bool) -> list[Result]:
        import ray

        connect(object_store_memory=object_store)
        try:
            return measure(small, survey(Resources()))
        finally:
            ray.shutdown()

    return run


SECTIONS: dict[str, Callable[[bool], list[Result]]] = {
    "perturb": perturbation.measure,
    "shard": on_ray(sharding.measure),
    "train": training_input.measure,
    "stream": on_ray(streaming.measure, streaming.OBJECT_STORE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, by commas (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="the smallest size, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"--only {unknown[0]}: there are {', '.join(SECTIONS)}")
    run_as_worker()
    report([result for name in names for result in SECTIONS[name](arguments.small)], arguments.json)


if __name__ == "__main__":
    main()
