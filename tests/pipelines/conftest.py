"""Runs `pipelines/full.py` as people do, and keeps the store of one smoke run for the tests that start from it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.machine import Machine, Resources, connect, survey

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "pipelines" / "full.py")]


def environment(**variables: str) -> dict[str, str]:
    """Like a new terminal: no MLflow server, no running cluster, a fixed width."""
    kept = {k: v for k, v in os.environ.items() if k not in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")}
    return kept | {"COLUMNS": "160"} | variables


def run_full(*arguments: str | Path, timeout: float = 300, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment(**variables))


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A local Ray in this process, as a program starts it."""
    import ray

    connect()
    yield survey(Resources())
    ray.shutdown()


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A finished run of the smoke preset: its store, its JSON and what it printed."""
    folder = tmp_path_factory.mktemp("smoke")
    done = run_full("smoke", "--store", folder / "store", "--json", folder / "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text())
    return {"store": folder / "store", "report": report, "printed": done.stdout, "errors": done.stderr}
