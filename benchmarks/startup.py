"""What a run costs that has nothing to do: start-up with every stage cached; and how idle a machine is in a demo.

python benchmarks/startup.py --json FILE      ten minutes; --only cached,idle chooses
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks.harness import Result, Section, main, paired

ROOT = Path(__file__).resolve().parents[1]
LOOK = 0.25  # seconds between two looks at what the cores do


def cached(small: bool) -> list[Result]:
    """`full.py demo` that finds every stage, against imports and a Ray that is started and ended."""
    preset, repeats = ("smoke", 1) if small else ("demo", 7)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "pipelines/full.py", preset, "--store", f"{folder}/store"]
        _seconds(command)
        bare = [sys.executable, "-c", "import torch, ray; ray.init()"]
        pairs = [(_seconds(command), _seconds(bare)) for _ in range(repeats)]
    return [paired(f"import torch, ray; ray.init() / full.py {preset} with every stage cached", pairs, 1 / 1.5)]


def idle(small: bool) -> list[Result]:
    """Of the run of a demo from nothing: the part of the time in which no core computes."""
    preset = "smoke" if small else "demo"
    with tempfile.TemporaryDirectory() as folder, watched_cores() as looks:
        seconds = _seconds([sys.executable, "pipelines/full.py", preset, "--store", f"{folder}/store"])
    idle = sum(busy < 0.1 for busy in looks) / max(1, len(looks))
    result = paired(f"full.py {preset}: part of the time in which a core computes", [(1.0, 1 - idle)], 0.8)
    return [replace(result, ours=seconds * (1 - idle), other=seconds)]


@contextmanager
def watched_cores() -> Iterator[list[float]]:
    """How busy the busiest core was, from one look to the next."""
    looks: list[float] = []
    over = threading.Event()

    def watch() -> None:
        before = _cores()
        while not over.wait(LOOK):
            now = _cores()
            shares = [
                (busy - was_busy) / max(1, total - was_total)
                for (busy, total), (was_busy, was_total) in zip(now, before, strict=True)
            ]
            looks.append(max(shares))
            before = now

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()


def _cores() -> list[tuple[int, int]]:
    """Ticks in which each core was busy, and all of its ticks."""
    found = []
    for line in Path("/proc/stat").read_text().splitlines():
        name, *rest = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(number) for number in rest[:8]]
            found.append((sum(ticks) - ticks[3] - ticks[4], sum(ticks)))  # without idle and waiting for a disk
    return found


def _seconds(command: list[str]) -> float:
    kept = {name: value for name, value in os.environ.items() if name not in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")}
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=kept, cwd=ROOT)
    return time.perf_counter() - started


SECTIONS: dict[str, Section] = {"cached": cached, "idle": idle}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
