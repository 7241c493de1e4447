"""The whole experiment on real CIFAR-10 against a plain program that does the same work: total time, start-up included.

python benchmarks/pipeline.py --json FILE      a quarter of an hour
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks.harness import Result, Section, main, paired
from benchmarks.programs import ROOT, run
from benchmarks.sharding import CIFAR


def whole(small: bool) -> list[Result]:
    """Images, RotNet, vocabulary, words, BoWNet, linear and few-shot scores of three networks."""
    if not CIFAR.is_dir():
        print(f"whole: left out, {CIFAR} is not there")
        return []
    images, teacher, student, words, repeats = (2000, 1, 1, 32, 1) if small else (10_000, 2, 3, 512, 3)
    turns = []
    for turn in range(repeats):
        sides = [lambda: ours(images, teacher, student, words), lambda: bare(images, teacher, student, words)]
        done = [side() for side in sides[:: 1 if turn % 2 else -1]]
        turns.append(done if turn % 2 else done[::-1])
    size = f"{images} images of CIFAR-10, RotNet {teacher}, BoWNet {student} epochs, K={words}"
    name = f"{size}: plain program / full.py"
    accuracy = [statistics.mean(side["scores"]["BoWNet"] for side in sides) for sides in zip(*turns, strict=True)]
    more = accuracy[0] - accuracy[1]
    return [
        paired(name, [(a["seconds"], b["seconds"]) for a, b in turns], 0.85),
        paired(f"{name}, without start-up", [(a["without_start"], b["without_start"]) for a, b in turns], 0.93),
        Result(
            f"{size}: points of BoWNet's linear accuracy more",
            more,
            -2,
            more >= -2,
            *accuracy,
            (more, more),
            "percent",
        ),
    ]


def ours(images: int, teacher: int, student: int, words: int) -> dict[str, Any]:
    """As people start it. Its start-up ends when the first run is there in MLflow, just before the first stage."""
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "data.kind": "parquet",
            "data.path": str(CIFAR),
            "data.train": images,
            "teacher.optimiser.epochs": teacher,
            "student.optimiser.epochs": student,
            "vocabulary.size": words,
            "store": f"{folder}/store",
            "json": f"{folder}/report.json",
        }
        settings = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        command = [
            sys.executable,
            str(ROOT / "pipelines/full.py"),
            "cifar10/small",
            "--no-figures",
            "--quiet",
            *settings,
        ]
        done = run(command)
        with closing(sqlite3.connect(f"{folder}/store/mlflow.db")) as database:
            (began,) = database.execute("select min(start_time) from runs").fetchone()
        rows = json.loads(Path(folder, "report.json").read_text())["rows"]
    scores = {row["name"]: row["metrics"]["linear/top1"] for row in rows}
    return {"seconds": done.seconds, "without_start": done.ended - began / 1000, "scores": scores}


def bare(images: int, teacher: int, student: int, words: int) -> dict[str, Any]:
    """Its start-up ends when all is imported. Both sides last until their process has ended, Ray and all."""
    program = [sys.executable, str(ROOT / "benchmarks/bare_pipeline.py"), str(CIFAR)]
    done = run([*program, *map(str, (images, teacher, student, words))])
    said = json.loads(done.printed)
    scores = {name: score["linear"] for name, score in said["scores"].items()}
    return {"seconds": done.seconds, "without_start": done.ended - said["began"], "scores": scores}


SECTIONS: dict[str, Section] = {"whole": whole}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
