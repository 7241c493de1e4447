"""Each benchmark runs at its smallest size, as a program; what ratios such a run gives is not looked at."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import suite
from benchmarks.growth import Growth
from benchmarks.harness import compare, table
from benchmarks.sides import Side, in_turns
from bownet.config import Fewshot
from evaluation.episodes import seeded_episodes

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


def test_the_model_of_large_clusters_gives_what_its_page_says() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    (command,) = re.findall(r"^`python (benchmarks/scale\.py --decode .+)`:$", page, re.MULTILINE)
    done = subprocess.run([sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, timeout=300)
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 7 * 3
    assert "\n".join(rows) in page
    hours = re.findall(r"([\d.]+) hours$", done.stdout, re.MULTILINE)
    assert re.search("{} hours on 8 GPUs,\\s{} on 64, {} on 512".format(*hours), page)


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
        ("pipeline.py", "whole"),
        ("startup.py", "cached"),
        ("startup.py", "idle"),
        ("against_peers.py", "clusters"),
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


def row(name: str, ratio: float, bar: float = 1.0) -> dict[str, Any]:
    return {"name": name, "ratio": ratio, "bar": bar, "met": ratio >= bar, "spread": [ratio, ratio], "program": "a.py"}


def test_a_ratio_that_falls_is_told_and_what_was_not_measured_is_kept() -> None:
    recorded = [row("fast", 10.0), row("steady", 2.0), row("points", 0.5, -0.3), row("elsewhere", 7.0)]
    measured = [row("fast", 8.4), row("steady", 1.75), row("points", -0.2, -0.3), row("new", 1.0)]
    assert suite.fallen(measured, recorded) == ["WARNING: fast: 8.4, recorded 10"]
    both = suite.kept(measured, recorded)
    assert [(one["name"], one["ratio"]) for one in both] == [
        ("fast", 8.4),
        ("steady", 1.75),
        ("points", -0.2),
        ("elsewhere", 7.0),
        ("new", 1.0),
    ]
    assert "| fast | 8.4 | 8.4–8.4 | 1 | yes | `a.py` |" in suite.markdown(both)


def test_the_suite_has_every_section() -> None:
    """What a program can measure is in the long set."""
    for program in {part.program for part in suite.FULL}:
        listed = {name for part in suite.FULL if part.program == program for name in part.sections.split(",")}
        module = importlib.import_module(f"benchmarks.{program.removesuffix('.py')}")
        assert listed == module.SECTIONS.keys(), program


def test_a_side_takes_its_turns_and_a_broken_one_tells_why(tmp_path: Path) -> None:
    file = tmp_path / "episodes.pt"
    labels = torch.arange(4).repeat(30)
    features = torch.nn.functional.one_hot(labels, 8).float()
    episodes = [tuple(seeded_episodes(labels, 1, Fewshot(shots=(1,), ways=3, queries=2, episodes=5)))]
    torch.save({"features": features, "labels": labels, "episodes": episodes}, file)
    pairs, results = in_turns(Side("episodes", file), Side("episodes", file), 2)
    assert results == ([100.0], [100.0])
    assert len(pairs) == 2
    assert all(seconds > 0 for pair in pairs for seconds in pair)
    with pytest.raises(AssertionError, match="No such file"), Side("episodes", tmp_path / "nothing.pt"):
        pass


def test_growth_has_exponents_and_a_figure(tmp_path: Path) -> None:
    assert Growth("squares", (1, 2, 4, 8), (5.0, 4.0, 16.0, 64.0)).exponent == pytest.approx(2)
    file, figure = tmp_path / "growth.json", tmp_path / "growth.png"
    command = [sys.executable, str(ROOT / "benchmarks" / "growth.py"), "--small", "--only", "taps,dimensions"]
    done = subprocess.run(
        [*command, "--json", str(file), "--figure", str(figure)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(file.read_text())["growth"]] == [
        "linear classifiers, by taps",
        "nearest words, by dimensions",
    ]
    assert figure.read_bytes()[:4] == b"\x89PNG"


def test_a_peer_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    program = str(ROOT / "benchmarks" / "against_peers.py")
    command = [sys.executable, program, "--small", "--only", "obow_fewshot,lightly", "--lightly-python", "/bin/false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "obow: left out, --obow is not given" in done.stdout
    assert "lightly: left out, /bin/false cannot import lightly" in done.stdout


def test_an_unknown_section_is_told(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "input.py"), "--only", "shards"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "there are perturb, shard, train, stream" in done.stderr


def test_pages_show_what_is_recorded() -> None:
    recorded = json.loads(suite.RESULTS.read_text())["results"]
    shown = "\n".join(page.read_text() for page in suite.PAGES)
    assert {name for mark in suite.MARK.findall(shown) for name in mark[1].split()} == {p.program for p in suite.FULL}
    for page in suite.PAGES:
        assert suite.filled(page.read_text(), recorded) == page.read_text(), page
