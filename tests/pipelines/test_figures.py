"""figures.py as people run it, on the store of a real run: every kind as a picture, and what it refuses."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, environment
from PIL import Image

from bownet.config import Evaluation
from evaluation.interval import interval
from pipelines import figures
from pipelines.drawing.lines import draw_named
from pipelines.evaluators import Row
from pipelines.figure_kinds import KINDS, Of
from pipelines.over_runs import alike, bars_of, points
from pipelines.presets import PRESETS
from pipelines.records import Record
from pipelines.run_figures import write_figures
from pipelines.sweeps.summary import Summary
from pipelines.sweeps.summary import draw as draw_sweep

PROGRAM = [sys.executable, str(ROOT / "pipelines" / "figures.py")]


def draw(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["figures.py", *map(str, arguments)])
    return figures.main()


@pytest.mark.parametrize(
    "kind",
    [
        *("words", "word-maps", "health", "predictions", "tsne", "neighbours", "confusion", "training", "fewshot"),
        pytest.param("umap", marks=pytest.mark.slow),  # numba compiles it for some ten seconds
    ],
)
def test_every_kind(kind: str, smoke: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "figure.png"
    assert draw(monkeypatch, kind, "--store", smoke["store"], "--out", out) == 0
    with Image.open(out) as picture:
        assert min(picture.size) > 300


def test_a_network_by_its_key(
    smoke: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rotnet = next(row for row in smoke["report"]["rows"] if row["name"] == "RotNet")
    key, out = rotnet["artifacts"]["backbone"].rpartition("/")[2][:8], tmp_path / "figure.svg"
    assert draw(monkeypatch, "training", "--key", key, "--store", smoke["store"], "--out", out) == 0
    assert "training of RotNet" in capsys.readouterr().out
    assert "<svg" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fewshots"], "kind='fewshots': unknown, did you mean fewshot?"),
        (["tsne", "--key", "zzz"], "key='zzz': no finished run"),
        (["tsne", "--out", "a.gif"], "out=a.gif: must end with one of png, svg, pdf"),
        (["tsne", "--out", "nowhere/a.png"], "name a file in a folder that exists"),
        (["rounds"], "rounds are drawn of a run that has judged two or more"),
        (["vocabulary-size"], "no other run differs from it in vocabulary.size only"),
        (["detections"], "BoWNet was not judged by detection in this run"),
        (["words", "--words", "1", "999"], "words=999: has no patches; there are "),
    ],
)
def test_mistakes_are_answered_in_one_line(
    arguments: list[str],
    said: str,
    smoke: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert draw(monkeypatch, *arguments, "--store", smoke["store"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_some_words(smoke: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of blocks are twice as high as one."""
    heights = []
    for name, words in (("one.png", ["1", "3"]), ("two.png", ["1", "2", "3", "4", "5", "6", "7"])):
        out = tmp_path / name
        assert draw(monkeypatch, "words", "--words", *words, "--store", smoke["store"], "--out", out) == 0
        with Image.open(out) as picture:
            heights.append(picture.height)
    assert 1.6 < heights[1] / heights[0] < 2.1


def recorded(
    settings: dict[str, Any], seed: int, size: int, scores: dict[str, float], metric: str = "linear/top1"
) -> Record:
    changed = {**settings, "seed": seed, "vocabulary": {**settings["vocabulary"], "size": size}}
    rows = [{"name": name, "metrics": {metric: score}} for name, score in scores.items()]
    return Record(f"{seed}-{size}", changed, rows, 1.0)


def test_points_are_means_over_seeds_with_intervals() -> None:
    """Student's t of two numbers a point apart: 12.71 · 0.7071 / √2."""
    settings = PRESETS["smoke"]().model_dump(mode="json")
    runs = [recorded(settings, seed, k, {"BoWNet": 50.0 + seed + k}) for seed in (0, 1) for k in (4, 8)]
    runs.append(recorded({**settings, "rounds": 3}, 0, 4, {"BoWNet": 0.0}))  # another experiment
    here = alike(runs[0], runs, "vocabulary.size")
    assert here == runs[:4]
    assert alike(runs[0], runs) == [runs[0], runs[2]]
    made = points(
        here, lambda one: one.settings["vocabulary"]["size"], lambda one: one.rows[0]["metrics"]["linear/top1"]
    )
    assert [(x, y) for x, y, _ in made] == [(4, 54.5), (8, 58.5)]
    assert [half for _, _, half in made] == pytest.approx([6.353, 6.353], abs=1e-3)


@pytest.mark.parametrize(("kind", "ticks"), [("rounds", ["0", "1", "2"]), ("vocabulary-size", ["4", "8"])])
@pytest.mark.parametrize("metric", ["linear/top1", "linear/block2/top1"])
def test_scores_over_runs(kind: str, ticks: list[str], metric: str) -> None:
    """Also of a linear classifier on named taps, which has no score of the pooled feature."""
    settings = PRESETS["smoke"]().model_dump(mode="json")
    if metric == "linear/block2/top1":
        settings["linear"]["taps"] = ["block1", "block2"]
    scores = {"random": 5.0, "RotNet": 40.0, "BoWNet": 50.0, "BoWNet x2": 52.0}
    runs = [recorded(settings, seed, k, scores, metric) for seed in (0, 1) for k in (4, 8)]
    figure = KINDS[kind](Of(runs[0], Row("BoWNet x2", {}), runs))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ticks
    assert axes.get_ylabel() == f"{metric.replace('/', ' ')}, %"
    assert axes.get_xlabel().endswith("\nbars: 95% intervals over seeds")
    with pytest.raises(ValueError, match=f"metric=knn/top1_20: run 0-4 has no such score; .*: {metric}$"):
        KINDS[kind](Of(runs[0], Row("BoWNet x2", {}), runs, metric="knn/top1_20"))


@pytest.mark.parametrize("kind", ["rounds", "vocabulary-size", "predictions"])
def test_a_run_that_trained_nothing_is_told_so(kind: str) -> None:
    """Also where its rows are called as those of rounds are."""
    settings = Evaluation(weights=("aa", "bb")).model_dump(mode="json")
    rows = [{"name": name, "metrics": {"linear/top1": 5.0}} for name in ("BoWNet", "BoWNet x2")]
    record = Record("r", settings, rows, 1.0)
    said = {"predictions": "^kind=predictions: random predicts no words; name a student$"}
    with pytest.raises(
        ValueError, match=said.get(kind, "^key=r: judged networks that others made, .*name another run$")
    ):
        KINDS[kind](Of(record, Row("random", {}), [record]))


def test_one_seed_has_no_bar() -> None:
    settings = PRESETS["smoke"]().model_dump(mode="json")
    runs = [recorded(settings, 0, 4, {"RotNet": 40.0, "BoWNet": 50.0, "BoWNet x2": 52.0})]
    (axes,) = KINDS["rounds"](Of(runs[0], Row("BoWNet x2", {}), runs)).axes
    (container,) = axes.containers
    _, caps, (bars,) = container
    assert [len(segment) for segment in bars.get_segments()] == [0, 0, 0]
    assert np.isnan([np.array(cap.get_ydata(), float) for cap in caps]).all()
    assert axes.get_xlabel() == "round\nno bars: one seed"
    assert bars_of([1.0, math.nan]) == "bars: 95% intervals over seeds, none where there is one"


def test_a_run_has_the_figures_that_its_scores_allow(tmp_path: Path) -> None:
    """Also one of evaluate.py, which has no vocabulary."""
    shots = {"linear/top1": 50.0, "fewshot/1shot": 20.0, "fewshot/5shot": 30.0}
    judged = Evaluation(weights=("random:wrn-10-1",)).model_dump(mode="json")
    two_rounds = PRESETS["smoke"]().model_dump(mode="json")
    expected = {"judged": (judged, ["R50"], ["fewshot"]), "plain": (two_rounds, ["BoWNet"], ["fewshot"])}
    expected["rounds"] = (two_rounds, ["BoWNet", "BoWNet x2"], ["fewshot", "rounds"])
    for run, (settings, names, kinds) in expected.items():
        record = Record(run, settings, [{"name": name, "metrics": shots} for name in names], 1.0)
        files = write_figures(record, Row(names[-1], {}), str(tmp_path))
        assert files == [str(tmp_path / "figures" / run / f"{kind}.png") for kind in kinds]
        assert all(Path(file).stat().st_size > 1000 for file in files)


def test_a_sweep_is_drawn_over_its_number_or_by_name(tmp_path: Path) -> None:
    def point(label: str, settings: dict[str, Any], *scores: float) -> Summary:
        return Summary(label, settings, "BoWNet", (0, 1), {"linear/top1": interval(scores)}, ())

    numbers = [point(f"vocabulary.size={k}", {"vocabulary.size": k}, k, k + 1.0) for k in (4, 64)]
    for name, points_ in (("over.png", numbers), ("names.png", [*numbers, point("no CutMix", {}, 7.0, 8.0)])):
        draw_sweep(points_, "linear/top1", "Reduced scale (tiny). made on smoke", tmp_path / name)
        with Image.open(tmp_path / name) as picture:
            assert picture.info["dpi"] == pytest.approx((150, 150), abs=0.1)
    (axes,) = draw_named([("base", 50.0, 1.0), ("no CutMix", 40.0, 0.0)], "made", "%").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["base", "no CutMix"]
    assert axes.yaxis_inverted()  # the first one is at the top


def test_a_network_without_words(smoke: dict[str, Any]) -> None:
    key = smoke["report"]["rows"][0]["artifacts"]["backbone"].rpartition("/")[2]
    command = [*PROGRAM, "words", "--key", key, "--store", str(smoke["store"])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 2
    assert done.stderr == "error: kind=words: random predicts no words; name a student\n"
