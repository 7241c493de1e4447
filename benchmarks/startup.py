"""What a run costs that has nothing to do: start-up with every stage cached; and how idle a machine is in a demo.

python benchmarks/startup.py --json FILE      ten minutes; --only cached,idle chooses, cached_short is a small one
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks.harness import Result, Section, main, paired
from benchmarks.programs import idle_part, run


def cached(small: bool, preset: str = "demo", repeats: int = 7) -> list[Result]:
    """`full.py demo` that finds every stage, against imports and a Ray that is started and ended."""
    preset, repeats = ("smoke", 1) if small else (preset, repeats)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "pipelines/full.py", preset, "--store", f"{folder}/store"]
        run(command)
        bare = [sys.executable, "-c", "import torch, ray; ray.init()"]
        pairs = [(run(command).seconds, run(bare).seconds) for _ in range(repeats)]
    return [paired(f"import torch, ray; ray.init() / full.py {preset} with every stage cached", pairs, 1 / 1.5)]


def cached_short(small: bool) -> list[Result]:
    """Of the smallest experiment, which is soon there."""
    return cached(small, "smoke", 3)


def idle(small: bool) -> list[Result]:
    """Of the run of a demo from nothing: the part of the time in which it computes, on any core."""
    preset = "smoke" if small else "demo"
    with tempfile.TemporaryDirectory() as folder:
        seconds, part = idle_part([sys.executable, "pipelines/full.py", preset, "--store", f"{folder}/store"])
    result = paired(f"full.py {preset}: part of the time in which a core computes", [(1.0, 1 - part)], 0.8)
    return [replace(result, ours=seconds * (1 - part), other=seconds)]


SECTIONS: dict[str, Section] = {"cached": cached, "idle": idle, "cached_short": cached_short}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
