"""Who stands back for a training: real processes that are named as Ray names its own, and their scheduling policies."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

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
    script = tmp_path / "log_monitor.py"
    script.write_text("import time; time.sleep(60)")
    raylet = [sys.executable, "-c", "import time; time.sleep(60)", "--agent", f"python {script}"]
    with sleeping(sys.executable, "-u", str(script)) as watcher, sleeping(*raylet) as other:
        before_watchers()
        assert POLICY[os.sched_getscheduler(watcher)] == "patient"
        assert POLICY[os.sched_getscheduler(other)] == "normal", "a raylet's arguments name its agents"


TRAINING = "from pipelines.priority import before_helpers; before_helpers(streams={})"
NAMES = {
    "ray::TrainController.run": "patient",
    "ray::_StatsActor": "patient",
    "ray::DatasetManager": "patient",
    "ray::DashboardAgent": "patient",
    "ray::Board.take": "polite",
    "ray::IDLE": "polite",
    "ray::RayTrainWorker": "normal",
    "ray::_MapWorker.submit": "normal",
    "gcs_server": "normal",
}


@pytest.mark.parametrize("streams", [True, False])
def test_helpers_beside_a_training_worker(streams: bool) -> None:
    """This process is their raylet."""
    names = NAMES | {"ray::_AutoscalingCoordinatorActor": "polite" if streams else "patient"}
    with ExitStack() as stack:
        started = {name: stack.enter_context(sleeping(name=name)) for name in names}
        subprocess.run([sys.executable, "-c", TRAINING.format(streams)], cwd=ROOT, check=True)
        assert {name: POLICY[os.sched_getscheduler(pid)] for name, pid in started.items()} == names
        assert POLICY[os.sched_getscheduler(0)] == "normal"
