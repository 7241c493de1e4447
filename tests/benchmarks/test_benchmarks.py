"""Each benchmark runs at its smallest size, as a program; what ratios such a run gives is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import compare, table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("section", "expected"), [("perturb", "torchvision"), ("train", "training step")])
def test_input_runs_and_writes_json(section: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "input.py"), "--small", "--only", section, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    assert written.keys() == {"results", "machine", "commit"}
    assert any(expected in result["name"] for result in written["results"])
    for result in written["results"]:
        assert result.keys() == {"name", "ratio", "bar", "met", "ours", "other", "spread"}
        assert result["met"] == (result["ratio"] >= result["bar"])
        assert result["name"] in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("section", ["shard", "stream"])
def test_sections_on_ray(section: str, tmp_path: Path) -> None:
    test_input_runs_and_writes_json(section, "", tmp_path)


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
