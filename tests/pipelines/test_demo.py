"""Slow: the demo's claim for three seeds, and the same program as a job on a running cluster."""

import json
import os
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
        done = run_full("demo", "--seed", str(seed), "--store", tmp_path / "store", "--json", report, timeout=1000)
        assert done.returncode == 0, done.stderr
        for row in json.loads(report.read_text())["rows"]:
            linear.setdefault(row["name"], []).append(row["metrics"]["linear/top1"])
    for lower, higher in (("random", "RotNet"), ("RotNet", "BoWNet")):
        assert all(a < b for a, b in zip(linear[lower], linear[higher], strict=True)), linear
        assert statistics.mean(linear[higher]) - statistics.mean(linear[lower]) >= 2, linear
    assert statistics.mean(linear["BoWNet x2"]) > statistics.mean(linear["RotNet"])


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
    start = [ray, "start", "--head", "--num-cpus=2", "--dashboard-host=127.0.0.1", *ports]
    # `ray stop` would end every Ray on this machine; a blocking start ends what it has started
    process = subprocess.Popen([*start, "--block"], env=variables, cwd=tmp_path)
    submit = variables | {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:28265", "RAY": ray}
    try:
        for _ in range(60):
            listed = subprocess.run([ray, "job", "list"], env=submit, cwd=tmp_path, capture_output=True, text=True)
            if listed.returncode == 0:
                break
            time.sleep(1)
        else:
            pytest.fail(f"the cluster did not come up: {listed.stderr}")
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
    assert not report.exists()
    done = subprocess.run(command, env=cluster, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "linear top1" in done.stdout
    assert [row["name"] for row in json.loads(report.read_text())["rows"]] == ["random", "RotNet", "BoWNet"]
