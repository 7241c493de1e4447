"""Slow: the demo's claim for three seeds."""

import json
import statistics
from pathlib import Path

import pytest
from conftest import run_full

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
