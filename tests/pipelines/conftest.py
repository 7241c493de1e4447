"""Runs `pipelines/full.py` as people do, and keeps the store of one smoke run for the tests that start from it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bownet.config import Data
from pipelines.machine import Machine, Resources, connect, survey
from pipelines.stages.images import Images
from pipelines.store import Artifact, Store

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROGRAM = [sys.executable, str(ROOT / "pipelines" / "full.py")]


def environment(**variables: str) -> dict[str, str]:
    """Like a new terminal: no MLflow server, no running cluster, a fixed width."""
    kept = {k: v for k, v in os.environ.items() if k not in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")}
    return kept | {"COLUMNS": "160"} | variables


def run_full(
    *arguments: str | Path, timeout: float = 300, figures: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Figures take a while, so that most tests do without."""
    is_run = bool(arguments) and not str(arguments[0]).startswith("-")
    told = ["--no-figures"] if is_run and not figures else []
    command = [*PROGRAM, *map(str, arguments), *told]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment(**variables))


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(scope="module")
def machine() -> Machine:
    """A local Ray in this process, as a program starts it; all modules share it until one wants another."""
    import ray

    if not ray.is_initialized():
        connect()
    return survey(Resources())


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of one node with two CPUs, to which this process is connected as a program would be."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_maximum_startup_concurrency", "16")  # as `connect` starts a local Ray
        patch.setenv("RAY_idle_worker_killing_time_threshold_ms", "600000")
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        patch.setenv("RAY_ADDRESS", started.address)
        connect()
        yield started
        ray.shutdown()
        started.shutdown()


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Artifact:
    """A hundred small images, stored as pixels."""
    data = Data(train=100, test=20, novel_per_class=1, image_size=16, shard_size=30)
    return Store(tmp_path_factory.mktemp("raw"), machine=machine).get(Images(data))


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A finished run of the smoke preset: its store, its JSON and what it printed."""
    folder = tmp_path_factory.mktemp("smoke")
    done = run_full("smoke", "--store", folder / "store", "--json", folder / "report.json", figures=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text())
    return {"store": folder / "store", "report": report, "printed": done.stdout, "errors": done.stderr}


@pytest.fixture
def browser() -> Iterator[Any]:
    """Debian's Chromium. Where CI is set a machine without it fails, so that nobody takes a skip for a pass."""
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("chromium is not installed; apt-get install chromium")
    with sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield opened
        opened.close()
