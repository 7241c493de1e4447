"""Stages for tests of the store: they note in a diary outside of it what they do."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pipelines.store import Artifact, Observer, Stage, Workspace

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Shards(Stage):
    """Writes `count` shards, skips those that are there, and notes each one it makes in a diary outside."""

    name: ClassVar[str] = "shards"
    version: ClassVar[int] = 1
    count: int
    diary: Path
    raise_at: int = -1
    hang_at: int = -1
    seconds: float = 0.0

    def config(self) -> dict[str, Any]:
        return {"count": self.count}

    def build(self, work: Workspace) -> dict[str, Any]:
        self.note("build")
        for i in range(self.count):
            if work.exists(f"shards/{i}.npy"):
                continue
            if i == self.raise_at:
                raise RuntimeError("power cut")
            if i == self.hang_at:
                work.scratch.write_json("checkpoint.json", {"next": i})
                work.write_via(f"shards/{i}.npy", self.hang)
            self.note(f"shard {i}")
            work.write_npy(f"shards/{i}.npy", np.full(4, i))
        time.sleep(self.seconds)
        return {"rows": 4 * self.count}

    def note(self, line: str) -> None:
        with self.diary.open("a") as file:
            file.write(line + "\n")

    def hang(self, path: Path) -> None:
        path.write_bytes(b"half a shard")
        self.note("hanging")
        time.sleep(60)


@dataclass(frozen=True)
class Sum(Stage):
    """Made from shards."""

    name: ClassVar[str] = "sum"
    version: ClassVar[int] = 1
    shards: Artifact
    scale: int = 1

    def config(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def inputs(self) -> dict[str, Artifact]:
        return {"shards": self.shards}

    def build(self, work: Workspace) -> dict[str, Any]:
        total = sum(int(self.shards.read_npy(name).sum()) for name in self.shards.manifest()["files"])
        work.write_json("sum.json", self.scale * total)
        return {"sum": np.int64(self.scale * total)}

    @property
    def label(self) -> str:
        return f"sum x {self.scale}"


class Diary(Observer):
    """What the store told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_start(self, stage: Stage, artifact: Artifact) -> None:
        self.told.append(f"start {stage.label}")

    def on_done(self, stage: Stage, artifact: Artifact, cached: bool, seconds: float) -> None:
        self.told.append(f"done {stage.label} {cached}")

    def on_waiting(self, stage: Stage, artifact: Artifact, holder: str) -> None:
        self.told.append(f"waiting for {holder}")

    def on_corrupt(self, stage: Stage, artifact: Artifact, reason: str) -> None:
        self.told.append(f"corrupt {reason}")


def in_child(root: Path, stage: str, before: str = "") -> subprocess.Popen[str]:
    """A process that asks the store for the stage, given as source text."""
    script = f"""
from pathlib import Path
from pipelines.store import Store, StoreError
from tests.pipelines.diary_stages import *
{before}
try:
    Store({str(root)!r}).get({stage})
except StoreError as error:
    raise SystemExit(str(error))
"""
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)


def wait_for_line(diary: Path, line: str) -> None:
    deadline = time.monotonic() + 20
    while not (diary.exists() and line in diary.read_text().splitlines()):
        assert time.monotonic() < deadline, f"{line!r} never came"
        time.sleep(0.02)
