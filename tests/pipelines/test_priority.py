"""Who stands back for a training: real processes that are named as Ray names its own, and their scheduling policies."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from pipelines.priority import before_watchers

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has these policies")
ROOT = Path(__file__).resolve().parents[2]
POLICY = {os.SCHED_OTHER: "normal", os.SCHED_BATCH: "polite", os.SCHED_IDLE: "patient"}


@contextmanager
def sleeping(*command: str, name: str | None = None) -> Iterator[int]:
    """A process of this command, or of this name, that does nothing."""
    given = [name, "60"] if name else [*command]
    with subprocess.Popen(given, executable="/bin/sleep" if name else None) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_what_watches_a_local_ray(tmp_path: Path) -> None:
    script, reader = tmp_path / "monitor.py", tmp_path / "log_monitor.py"
    for file in (script, reader):
        file.write_text("import time; time.sleep(60)")
    raylet = [sys.executable, "-c", "import time; time.sleep(60)", "--agent", f"python {script}"]
    with (
        sleeping(sys.executable, "-u", str(script)) as watcher,
        sleeping(sys.executable, "-u", str(reader)) as of_logs,
        sleeping(*raylet) as other,
    ):
        before_watchers()
        assert not psutil.pid_exists(of_logs), "nobody reads what it reads"
        assert POLICY[os.sched_getscheduler(watcher)] == "patient"
        assert POLICY[os.sched_getscheduler(other)] == "normal", "a raylet's arguments name its agents"


TRAINING = "from pipelines.priority import before_helpers; before_helpers()"
NAMES = {
    "ray::TrainController.run": "patient",
    "ray::_StatsActor": "patient",
    "ray::DatasetManager": "patient",
    "ray::DashboardAgent": "patient",
    "ray::_AutoscalingCoordinatorActor": "polite",
    "ray::Board.take": "polite",
    "ray::IDLE": "polite",
    "ray::RayTrainWorker": "normal",
    "ray::_MapWorker.submit": "normal",
    "gcs_server": "normal",
}


def test_helpers_beside_a_training_worker() -> None:
    """This process is their raylet."""
    with ExitStack() as stack:
        started = {name: stack.enter_context(sleeping(name=name)) for name in NAMES}
        subprocess.run([sys.executable, "-c", TRAINING], cwd=ROOT, check=True)
        assert {name: POLICY[os.sched_getscheduler(pid)] for name, pid in started.items()} == NAMES
        assert POLICY[os.sched_getscheduler(0)] == "normal"
