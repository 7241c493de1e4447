"""Slow: the demo's claim for three seeds, and the same program as a job on a running cluster."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, environment, run_full

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_random_then_rotnet_then_bownet_for_three_seeds(tmp_path: Path) -> None:
    linear: dict[str, list[float]] = {}
    for seed in range(3):
        report = tmp_path / f"{seed}.json"
        arguments = ("demo", "--seed", str(seed), "--store", tmp_path / "store", "--json", report)
        done = run_full(*arguments, timeout=1000, figures=seed == 0)
        assert done.returncode == 0, done.stderr
        for row in json.loads(report.read_text())["rows"]:
            linear.setdefault(row["name"], []).append(row["metrics"]["linear/top1"])
    for lower, higher in (("random", "RotNet"), ("RotNet", "BoWNet")):
        assert all(a < b for a, b in zip(linear[lower], linear[higher], strict=True)), linear
        assert statistics.mean(linear[higher]) - statistics.mean(linear[lower]) >= 2, linear
    assert statistics.mean(linear["BoWNet x2"]) > statistics.mean(linear["RotNet"])
    (page,) = (tmp_path / "store" / "pages").glob("*.html")
    assert page.stat().st_size < 15e6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A Ray cluster as `ray start` makes it, with token authentication; yields the variables that a user would set."""
    binaries = Path(sys.executable).parent
    ray = str(binaries / "ray")
    variables = environment(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN="a-token-of-this-test-only-0123456789",
        PATH=f"{binaries}:{os.environ['PATH']}",  # as after `. .venv/bin/activate`
    )
    ports = ["--port=26379", "--dashboard-port=28265", "--ray-client-server-port=26001"]
    ports += ["--dashboard-agent-listen-port=28366"]  # its default may be another Ray's on this machine
    start = [ray, "start", "--head", "--num-cpus=2", "--dashboard-host=127.0.0.1", *ports]
    # `ray stop` would end every Ray on this machine; a blocking start ends what it has started
    process = subprocess.Popen([*start, "--block"], env=variables, cwd=tmp_path)
    submit = variables | {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:28265", "RAY": ray}
    try:
        for _ in range(60):
            first = [ray, "job", "submit", "--no-wait", "--", "true"]  # taken when there is an agent for it
            tried = subprocess.run(first, env=submit, cwd=tmp_path, capture_output=True, text=True)
            if tried.returncode == 0:
                break
            time.sleep(1)
        else:
            pytest.fail(f"the cluster did not come up: {tried.stderr}")
        yield submit
    finally:
        process.terminate()
        process.wait(timeout=120)


def test_submitted_as_a_job(cluster: dict[str, str], tmp_path: Path) -> None:
    """`ray job submit -- python pipelines/full.py` as the README has it, and refused without the token."""
    report = tmp_path / "report.json"
    program = ["python", "pipelines/full.py", "smoke", "--store", str(tmp_path / "store"), "--json", str(report)]
    command = [cluster["RAY"], "job", "submit", "--working-dir", ".", "--", *program]
    stranger = {name: value for name, value in cluster.items() if name != "RAY_AUTH_TOKEN"}
    stranger |= {"HOME": str(tmp_path)}  # where no token lies either
    refused = subprocess.run(command, env=stranger, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0
    assert re.search("401|Unauth|authentication token", refused.stdout + refused.stderr)
    assert not report.exists()
    done = subprocess.run(command, env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    log = done.stdout.partition("\nsmoke: ")[2].partition("Compare runs")[0]  # without what `ray job submit` tells
    assert "linear top1" in log
    assert "\x1b" not in log
    assert [row["name"] for row in json.loads(report.read_text())["rows"]] == ["random", "RotNet", "BoWNet"]


def test_a_stopped_job_goes_on_when_it_is_submitted_again(cluster: dict[str, str], tmp_path: Path) -> None:
    """`ray job stop` in the middle of the student's training; its log tells what went on, and no secret."""
    store, report = tmp_path / "store", tmp_path / "report.json"
    ray = cluster["RAY"]
    program = ["python", "pipelines/full.py", "smoke", "--student.optimiser.epochs", "40", "--store", str(store)]
    tracking = tmp_path / "elsewhere.db"
    variables = {"A_SECRET": "not-to-be-logged", "MLFLOW_TRACKING_URI": f"sqlite:///{tracking}"}
    settings = json.dumps({"env_vars": variables})
    submit = [ray, "job", "submit", "--working-dir", ".", "--runtime-env-json", settings]

    def run(*command: str) -> str:
        done = subprocess.run(command, env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run(*submit, "--no-wait", "--submission-id", "first", "--", *program)
    deadline = time.monotonic() + 300
    while not list(store.glob("scratch/student/*/checkpoint.pt")):
        assert time.monotonic() < deadline, run(ray, "job", "logs", "first")
        time.sleep(0.05)
    run(ray, "job", "stop", "first")
    assert "Job 'first' was stopped" in run(ray, "job", "status", "first")
    log = run(ray, "job", "logs", "first")
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
    for secret in ("not-to-be-logged", cluster["RAY_AUTH_TOKEN"]):
        assert secret not in log
        assert not any(secret.encode() in content for content in written)
