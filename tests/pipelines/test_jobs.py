"""`ray job submit -- python pipelines/full.py` as the README has it, on a cluster that `ray start` has made."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from ray_start import RAY, TOKEN, head_node

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with head_node(tmp_path_factory.mktemp("cluster")) as variables:
        yield variables


def test_submitted_as_a_job(cluster: dict[str, str], tmp_path: Path) -> None:
    """Its log can be read: every stage, the table, and no escape codes."""
    report = tmp_path / "report.json"
    program = ["python", "pipelines/full.py", "smoke", "--store", str(tmp_path / "store"), "--json", str(report)]
    command = [RAY, "job", "submit", "--working-dir", ".", "--", *program]
    done = subprocess.run(command, env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    log = done.stdout.partition("\nsmoke: ")[2].partition("Compare runs")[0]  # without what `ray job submit` tells
    assert "linear top1" in log
    assert "\x1b" not in log
    assert [row["name"] for row in json.loads(report.read_text())["rows"]] == ["random", "RotNet", "BoWNet"]


SHOWS_VARIABLES = """
import os, ray
from pipelines.machine import connect

connect()
names = ("GOMP_SPINCOUNT", "MINE", "RAY_CHDIR_TO_TRIAL_DIR")
print("a worker has", ray.get(ray.remote(lambda: [os.environ.get(name) for name in names]).remote()))
"""


def test_a_submission_may_set_a_variable_of_ours(cluster: dict[str, str]) -> None:
    """It stays as it was submitted, and so do the others that the job carries."""
    settings = json.dumps({"env_vars": {"GOMP_SPINCOUNT": "77", "MINE": "kept"}})
    submit = [RAY, "job", "submit", "--working-dir", ".", "--runtime-env-json", settings, "--"]
    command = [*submit, "python", "-c", SHOWS_VARIABLES]
    done = subprocess.run(command, env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a worker has ['77', 'kept', '0']" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_stopped_job_goes_on_when_it_is_submitted_again(cluster: dict[str, str], tmp_path: Path) -> None:
    """`ray job stop` in the middle of the student's training; its log tells what went on, and no secret."""
    store, report = tmp_path / "store", tmp_path / "report.json"
    program = ["python", "pipelines/full.py", "smoke", "--student.optimiser.epochs", "150", "--store", str(store)]
    tracking = tmp_path / "elsewhere.db"
    variables = {"A_SECRET": "not-to-be-logged", "MLFLOW_TRACKING_URI": f"sqlite:///{tracking}"}
    settings = json.dumps({"env_vars": variables})
    submit = [RAY, "job", "submit", "--working-dir", ".", "--runtime-env-json", settings]

    def run(*command: str) -> str:
        done = subprocess.run(command, env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(*submit, "--no-wait", "--submission-id", "first", "--", *program)
    deadline = time.monotonic() + 300
    while not list(store.glob("scratch/student/*/checkpoint.pt")):
        assert time.monotonic() < deadline, run(RAY, "job", "logs", "first")
        time.sleep(0.05)
    run(RAY, "job", "stop", "first")
    assert "Job 'first' was stopped" in run(RAY, "job", "status", "first")
    log = run(RAY, "job", "logs", "first")
    assert "RotNet: training" in log
    assert "BoWNet: training" in log
    teacher = {path: path.stat().st_mtime_ns for path in store.glob("artifacts/teacher/*/manifest.json")}
    assert len(teacher) == 1
    assert not list(store.glob("artifacts/student/*"))
    log += run(*submit, "--submission-id", "second", "--", *program, "--json", str(report))
    made = json.loads(report.read_text())
    cached = {stage["name"]: stage["cached"] for stage in made["stages"]}
    assert (cached["teacher"], cached["words"], cached["student"]) == (True, True, False)
    assert {path: path.stat().st_mtime_ns for path in teacher} == teacher
    assert tracking.exists()  # the variables have reached the job
    written = [path.read_bytes() for path in (tracking, report, *store.rglob("*")) if path.is_file()]
    for secret in ("not-to-be-logged", TOKEN):
        assert secret not in log
        assert not any(secret.encode() in content for content in written)
