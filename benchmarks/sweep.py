"""What a sweep saves: four vocabulary sizes as one sweep against four runs of full.py, each with a store of its own.

python benchmarks/sweep.py --json FILE      about ten minutes; the smallest size is two vocabularies, once
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks.harness import Result, Section, main, paired
from benchmarks.programs import ROOT, run

BAR = 1 / 0.55  # a sweep costs at most 0.55 of the separate runs
TINY = ["--scale", "tiny", "--data.kind", "scenes", "--quiet"]
NO_FIGURES = ["--no-figures"]  # which trials do not draw


def separate(small: bool, trainer: str) -> list[Result]:
    """Both start from nothing and end with the scores of every vocabulary, programs and Ray included."""
    sizes, repeats = ((4, 8), 1) if small else ((2, 4, 8, 16), 3)
    pairs = [(_sweep(sizes), _runs(sizes, trainer)) for _ in range(repeats)]
    return [paired(f"{len(sizes)} vocabulary sizes, tiny: full.py with trainer={trainer} / one sweep", pairs, BAR)]


def _sweep(sizes: Sequence[int]) -> float:
    space = f"vocabulary.size={','.join(map(str, sizes))}"
    return _seconds("sweep.py", "--preset", "cifar100/bownet", "--space", space, *TINY)


def _runs(sizes: Sequence[int], trainer: str) -> float:
    given = ["--resources.trainer", trainer, *TINY, *NO_FIGURES]
    return sum(_seconds("full.py", "cifar100/bownet", "--vocabulary.size", str(k), *given) for k in sizes)


def _seconds(program: str, *arguments: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return run(
            [sys.executable, str(ROOT / "pipelines" / program), *arguments, "--store", f"{folder}/store"]
        ).seconds


SECTIONS: dict[str, Section] = {
    "ray_train": lambda small: separate(small, "ray_train"),
    "task": lambda small: separate(small, "task"),
}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
