"""Each benchmark runs at its smallest size, as a program; what ratios such a run gives is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import compare, table

ROOT = Path(__file__).parents[2]


def runs_and_writes_json(program: str, section: str, file: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / program), "--small", "--only", section, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    assert written.keys() == {"results", "machine", "commit"}
    for result in written["results"]:
        assert result.keys() == {"name", "ratio", "bar", "met", "ours", "other", "spread", "unit"}
        assert result["met"] == (result["ratio"] >= result["bar"])
        assert result["name"] in done.stdout


@pytest.mark.parametrize(
    ("program", "section"),
    [("input.py", "perturb"), ("input.py", "train"), ("evaluation.py", "fewshot"), ("evaluation.py", "linear")],
)
def test_it_runs_and_writes_json(program: str, section: str, tmp_path: Path) -> None:
    runs_and_writes_json(program, section, tmp_path / "r.json")


def test_the_model_of_large_clusters(tmp_path: Path) -> None:
    """One GPU has nobody to wait for; k-means takes as many as pay; a batch is the most that workers can share."""
    file = tmp_path / "r.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--gpus", "1,8,512", "--decode", "400"]
    done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    costs = {(c["stage"].split()[0], c["gpus"]): c for c in json.loads(file.read_text())["costs"]}
    assert costs["BoWNet", 1]["bottleneck"] == "compute"
    assert costs["BoWNet", 1]["seconds"] == pytest.approx(140 * 5005 * (256 / 2500 + 0.004), rel=0.01)
    assert costs["BoWNet", 8]["seconds"] < costs["BoWNet", 1]["seconds"] / 6
    assert costs["BoWNet", 512]["bottleneck"] == "batch"
    assert costs["k-means", 8]["stage"] == "k-means (8 GPUs)"
    assert costs["k-means", 512]["stage"] == "k-means (11 GPUs)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "section"),
    [
        ("input.py", "shard"),
        ("input.py", "stream"),
        ("words.py", "kmeans"),
        ("words.py", "minibatch"),
        ("words.py", "quantise"),
        ("words.py", "targets"),
        ("train.py", "worker"),
        ("train.py", "workers"),
        ("train.py", "bow"),
        ("evaluation.py", "svm"),
        ("evaluation.py", "voc_ap"),
        ("sweep.py", "task"),
    ],
)
def test_it_runs_slowly(program: str, section: str, tmp_path: Path) -> None:
    runs_and_writes_json(program, section, tmp_path / "r.json")


def test_a_ratio_is_how_many_times_faster_ours_is() -> None:
    from time import sleep

    result = compare("sleep", lambda: sleep(0.001), lambda: sleep(0.01), bar=5, repeats=5, seconds=0.01)
    assert 4 < result.ratio < 11
    assert 0.0009 < result.ours < 0.004
    assert "sleep" in table([result])


def test_an_unknown_section_is_told(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "input.py"), "--only", "shards"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "there are perturb, shard, train, stream" in done.stderr
