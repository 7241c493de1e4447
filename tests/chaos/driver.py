"""`pipelines/full.py` as people start it, on a cluster of ours: a pipeline that has every stage and takes a minute."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.store import Artifact
from pipelines.store.artifacts import MANIFEST, verified_manifest
from tests.pipelines.conftest import PROGRAM, environment

PIPELINE = {
    "resources.workers": "2",
    "resources.cpus-per-worker": "1",
    "data.train": "1280",
    "data.shard-size": "80",
    "data.image-size": "24",
    "vocabulary.size": "48",
    "vocabulary.iterations": "60",
    "vocabulary.tolerance": "0",
    "teacher.optimiser.epochs": "3",
    "student.optimiser.epochs": "4",
    "linear.epochs": "60",
}
TIMED = ("history.json",)  # files that hold times


class Driver:
    """One run of the pipeline in a store; it may be killed and started again."""

    def __init__(
        self, address: str, store: Path, log: Path, changed: Mapping[str, str] | None = None, **variables: str
    ) -> None:
        self.store = store
        self.log = log
        self.json = log.with_suffix(".json")
        self._settings = {**PIPELINE, **(changed or {}), "store": str(store), "json": str(self.json)}
        self._variables = environment(RAY_ADDRESS=address, **variables)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            given = [word for name, value in self._settings.items() for word in (f"--{name}", value)]
            command = [*PROGRAM, "smoke", "--no-figures", *given]
            self.process = subprocess.Popen(command, env=self._variables, stdout=output, stderr=output)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()  # SIGKILL
        self.process.wait()

    def exit_code(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def wait(self, seconds: float = 300) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def building(self) -> tuple[str, str]:
        """Label and key of the stage that is begun and not finished; "" between two."""
        with suppress(OSError):  # it may be over now
            begun = max(self.store.glob("begun/*.json"), key=lambda path: path.stat().st_mtime, default=None)
            if begun and not self.has_finished(begun.stem):
                return str(json.loads(begun.read_text())["label"]), begun.stem
        return "", ""

    def has_finished(self, key: str) -> bool:
        return any(self.store.glob(f"artifacts/*/{key}/manifest.json"))

    def metrics(self) -> dict[str, dict[str, float]]:
        report: dict[str, Any] = json.loads(self.json.read_text())
        return {row["name"]: row["metrics"] for row in report["rows"]}


def contents(store: Path) -> dict[str, str]:
    """sha256 of every file of every artifact, each of which is checked to be whole; without files that hold times.

    Nothing else lies in an artifact's folder.
    """
    found = {}
    for path in store.glob("artifacts/*/*"):
        artifact = Artifact(path.parent.name, path.name, str(store))
        checked = verified_manifest(artifact)
        assert checked is not None, f"{path} has no manifest: begun and never finished"
        left = {entry.name for entry in artifact.folder.walk()} - {MANIFEST, *checked["files"]}
        assert not left, f"{path} has what its manifest does not name: {', '.join(sorted(left))}"
        for name, file in checked["files"].items():
            if name not in TIMED:
                found[f"{path.parent.name}/{path.name}/{name}"] = file["sha256"]
    return found
