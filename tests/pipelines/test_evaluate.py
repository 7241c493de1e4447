"""evaluate.py as people run it: a stored network, a file and a random one, judged on a real Ray; what it refuses."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from conftest import ROOT, environment
from PIL import Image

from bownet.nets.checkpoint import load_backbone
from pipelines.results import columns_of, marked

PROGRAM = [sys.executable, str(ROOT / "pipelines" / "evaluate.py")]
SMOKE = ["--data.train", "240", "--data.test", "120", "--data.novel-per-class", "20", "--data.shard-size", "120"]
SMOKE += ["--data.image-size", "16"]
SMALL = ["--linear.epochs", "5", "--linear.batch-norm", "true", "--fewshot.shots", "1", "5", "--fewshot.episodes", "50"]


def run_evaluate(*arguments: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment())


@pytest.fixture(scope="module")
def judged(smoke: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The teacher of the smoke run by its key, its student as a file, and a random network."""
    folder = tmp_path_factory.mktemp("judged")
    rows = {row["name"]: row["artifacts"]["backbone"] for row in smoke["report"]["rows"]}
    shutil.copytree(smoke["store"], folder / "store")
    file = folder / "student.safetensors"
    shutil.copy(folder / "store" / "artifacts" / rows["BoWNet"] / "backbone.safetensors", file)
    weights = [rows["RotNet"].partition("/")[2][:8], file, "random:wrn-10-1"]
    done = run_evaluate(
        "--weights", *weights, *SMOKE, *SMALL, "--store", folder / "store", "--json", folder / "report.json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text())
    return {"store": folder / "store", "report": report, "printed": done.stdout, "errors": done.stderr, "file": file}


def test_a_row_for_each_of_the_weights(judged: dict[str, Any]) -> None:
    rows = judged["report"]["rows"]
    assert [row["name"] for row in rows] == ["RotNet", "student", "random"]
    for row in rows:
        assert {"name", "metrics", "protocol", "artifacts"} <= row.keys()
        assert {"fewshot/1shot", "fewshot/1shot_ci95", "fewshot/5shot", "fewshot/5shot_ci95"} <= row["metrics"].keys()
        assert any(name.startswith("linear/") and name.endswith("top1") for name in row["metrics"])
        assert row["protocol"]["linear"]["solver"]["epochs"] == 5
        assert row["protocol"]["linear"]["data"]["set"] == "scenes"
        assert row["protocol"]["fewshot"]["versions"]["torch"]


def test_scores_are_those_of_the_pipeline(smoke: dict[str, Any], judged: dict[str, Any]) -> None:
    """The same weights, images and settings are the same stages: the scores of full.py, found in its store."""
    full = {row["name"]: row for row in smoke["report"]["rows"]}
    ours = {row["name"]: row for row in judged["report"]["rows"]}
    assert ours["RotNet"]["metrics"] == full["RotNet"]["metrics"]
    assert ours["RotNet"]["artifacts"]["linear"] == full["RotNet"]["artifacts"]["linear"]
    assert ours["random"]["metrics"] == full["random"]["metrics"]
    assert ours["student"]["metrics"] == full["BoWNet"]["metrics"]  # another artifact with the same weights
    assert ours["student"]["artifacts"]["backbone"] != full["BoWNet"]["artifacts"]["backbone"]


def test_all_but_the_first_are_compared_with_it_in_pairs(judged: dict[str, Any]) -> None:
    first, *others = judged["report"]["rows"]
    assert "comparison" not in first
    for row in others:
        assert row["comparison"]["with"] == "RotNet"
        for shots in ("1shot", "5shot"):
            difference = row["comparison"]["differences"][shots]
            means = row["metrics"][f"fewshot/{shots}"] - first["metrics"][f"fewshot/{shots}"]
            assert difference["mean"] == pytest.approx(means, abs=1e-6)
            assert difference["ci95"] > 0
        assert (judged["store"] / "artifacts" / row["artifacts"]["comparison"] / "comparison.json").is_file()
    assert "random against RotNet, 5-shot on the same episodes: " in judged["printed"]


def test_the_table_is_followed_by_how_it_differs_from_the_paper(judged: dict[str, Any]) -> None:
    printed = judged["printed"]
    assert judged["errors"] == ""
    assert "linear: 240 training images of scenes instead of CIFAR-100's 50,000" in printed
    assert "batch norm before the classifier, the paper has none" in printed
    assert printed.index("Protocols against the paper's:") > printed.index("5-shot")
    assert "\u2020" not in printed  # one protocol for all, no marks


def test_mlflow_has_a_row_for_each(judged: dict[str, Any]) -> None:
    where = judged["report"]["mlflow"]
    client = mlflow.MlflowClient(tracking_uri=where["tracking_uri"])
    experiment = client.get_experiment_by_name("evaluation")
    assert experiment is not None
    child_filter = f"tags.`mlflow.parentRunId` = '{where['run_id']}'"
    children = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id], child_filter)}
    assert children.keys() == {"RotNet", "student", "random"}
    for row in judged["report"]["rows"]:
        logged = children[row["name"]].data.metrics
        assert logged["fewshot/5shot"] == row["metrics"]["fewshot/5shot"]


def test_a_second_time_everything_is_cached(judged: dict[str, Any], tmp_path: Path) -> None:
    weights = ["--weights", judged["file"], "random:wrn-10-1"]
    done = run_evaluate(*weights, *SMOKE, *SMALL, "--store", judged["store"], "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "student: few-shot" in done.stdout
    to_do = [line for line in done.stdout.splitlines() if "to do" in line and "│" in line]
    assert [line.split("│")[1].strip() for line in to_do] == ["random: comparison"]  # with another first


def test_the_backbone_of_a_row_can_be_taken_away(judged: dict[str, Any]) -> None:
    ref = judged["report"]["rows"][1]["artifacts"]["backbone"]
    path = judged["store"] / "artifacts" / ref / "backbone.safetensors"
    assert load_backbone(path).tap_channels["pool"] == 64


def test_results_of_different_protocols_are_marked(judged: dict[str, Any]) -> None:
    rows = json.loads(json.dumps(judged["report"]["rows"]))
    assert marked(rows) == ({}, [])
    rows[1]["protocol"]["linear"]["solver"]["epochs"] = 60
    rows[2]["protocol"]["fewshot"]["seeds"]["episodes"] = 1
    marks, notes = marked(rows)
    assert marks == {("student", "linear"): " *", ("random", "fewshot"): " †"}
    assert notes == [
        "* linear made otherwise than for RotNet: solver.epochs 60 instead of 5",
        "† fewshot made otherwise than for RotNet: seeds.episodes 1 instead of 0",
    ]
    assert [metric for _, metric in columns_of(rows)][-2:] == ["fewshot/1shot", "fewshot/5shot"]


OTHERS = ["--weights", "random:resnet18", "--data.train", "60", "--data.test", "40", "--data.image-size", "16"]
OTHERS += ["--evaluators", "knn", "retrieval", "finetune", "voc07_svm", "detection", "--knn.neighbours", "1"]
OTHERS += ["--retrieval.ranks", "1", "--finetune.fractions", "0.5", "--finetune.epochs", "1", "--finetune.drops"]
OTHERS += ["--finetune.batch", "16", "--voc07-svm.path", "scenes", "--voc07-svm.image-size", "32"]
OTHERS += ["--voc07-svm.taps", "pool5", "--voc07-svm.costs", "vissl", "--voc07-svm.max-iter", "10"]
OTHERS += ["--detection.path", "scenes", "--detection.train", "trainval07", "--detection.steps", "2"]
OTHERS += ["--detection.drops", "--detection.warmup", "1", "--detection.batch", "2", "--detection.train-sizes", "48"]
OTHERS += ["--detection.test-size", "48", "--detection.regions", "4", "--detection.proposals", "5"]
OTHERS += ["--detection.trials", "1", "--detection.pictures", "2", "--no-figures", "--resources.trainer", "task"]


@pytest.mark.slow
def test_all_other_evaluators_reach_the_json_and_mlflow(tmp_path: Path) -> None:
    done = run_evaluate(*OTHERS, "--store", tmp_path / "store", "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    (row,) = report["rows"]
    names = {"knn/top1_1", "retrieval/map", "retrieval/precision_1", "finetune/50pct/top1", "finetune/50pct/top5"}
    names |= {"voc07_svm/pool5/map", "detection/ap50", "detection/ap75", "detection/ap"}
    assert names <= row["metrics"].keys()
    assert all(0 <= row["metrics"][name] <= 100 for name in names)
    assert row["protocol"].keys() == {"knn", "retrieval", "finetune", "voc07_svm", "detection"}
    for evaluator, card in row["protocol"].items():
        assert card["evaluator"] == evaluator
        assert f"  {evaluator}: " in done.stdout  # how it differs from the paper, or that it is not in it
    client = mlflow.MlflowClient(tracking_uri=report["mlflow"]["tracking_uri"])
    experiment = client.get_experiment_by_name("evaluation")
    assert experiment is not None
    child = f"tags.`mlflow.parentRunId` = '{report['mlflow']['run_id']}'"
    (run,) = client.search_runs([experiment.experiment_id], child)
    assert {name: run.data.metrics[name] for name in names} == {name: row["metrics"][name] for name in names}


MISTAKES = {
    "no weights": ([], "weights=(): name what is to be judged"),
    "unknown weights": (["--weights", "resnet50"], "weights=resnet50: neither a file nor a key"),
    "unknown evaluator": (["--weights", "random:wrn-10-1", "--evaluators", "lineer"], "evaluators=lineer: "),
    "unlabelled": (
        ["--weights", "random:wrn-10-1", "--data.kind", "folder", "--data.path", "{photos}", "--evaluators", "linear"],
        "evaluators=linear: the train images have no class labels",
    ),
    "unknown setting": (["--wieghts", "x"], "--wieghts: unknown setting, did you mean --weights?"),
    "unknown arch": (["--weights", "x", "--arch", "resnet34"], "arch=resnet34: known are wrn-"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line_and_exit_code_2(case: str, tmp_path: Path) -> None:
    arguments, expected = MISTAKES[case]
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(10):
        Image.new("RGB", (16, 16), (i * 20, 0, 0)).save(photos / f"{i}.png")
    done = run_evaluate(*[a.format(photos=photos) for a in arguments], "--store", tmp_path / "s")
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"error: {expected}")
    assert not (tmp_path / "s").exists()
