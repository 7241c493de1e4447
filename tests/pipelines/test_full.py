"""The whole pipeline as a user runs it: a real Ray, a real MLflow store, real processes that are really killed."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
from conftest import PROGRAM, environment, run_full

from bownet.nets.checkpoint import load_backbone
from pipelines.presets import PRESETS


def metrics(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {row["name"]: row["metrics"] for row in report["rows"]}


def test_report_has_rows_stages_and_where_mlflow_is(smoke: dict[str, Any]) -> None:
    report = smoke["report"]
    assert [row["name"] for row in report["rows"]] == ["random", "RotNet", "BoWNet"]
    for row in report["rows"]:
        assert {"linear/top1", "fewshot/1shot", "fewshot/1shot_ci95", "fewshot/5shot"} <= row["metrics"].keys()
        assert all(0 <= value <= 100 for value in row["metrics"].values())
        assert row["protocol"]["linear"]["solver"]["epochs"] == 5
        assert row["protocol"]["fewshot"]["solver"]["episodes"] == 50
        words = {"patches", "predictions"} if row["name"] == "BoWNet" else set()
        assert row["artifacts"].keys() == {"backbone", "features", "linear", "fewshot", "gallery"} | words
    assert len(report["stages"]) == 20
    assert all(not stage["cached"] and stage["seconds"] >= 0 for stage in report["stages"])
    assert {"name", "key", "cached", "seconds"} <= report["stages"][0].keys()
    assert report["seconds"] > 0
    assert report["mlflow"]["tracking_uri"].startswith("sqlite:///")


def test_prints_the_table_and_the_mlflow_command_last(smoke: dict[str, Any]) -> None:
    lines = smoke["printed"].strip().splitlines()
    assert f"mlflow ui --backend-store-uri {smoke['report']['mlflow']['tracking_uri']} --host 127.0.0.1" in lines[-1]
    table = "\n".join(lines[-14:])
    assert all(name in table for name in ("random", "RotNet", "BoWNet", "linear top1"))
    assert "\x1b[" not in smoke["printed"]  # no escape codes in a log
    assert smoke["errors"] == ""


def test_mlflow_holds_settings_scores_and_curves(smoke: dict[str, Any]) -> None:
    where = smoke["report"]["mlflow"]
    client = mlflow.MlflowClient(tracking_uri=where["tracking_uri"])
    parent = client.get_run(where["run_id"])
    assert parent.info.status == "FINISHED"
    assert parent.data.params["vocabulary.size"] == "16"
    assert parent.data.params["student.optimiser.epochs"] == "2"
    scores = metrics(smoke["report"])
    assert parent.data.metrics["linear/top1"] == scores["BoWNet"]["linear/top1"]
    assert parent.data.metrics["rotnet/fewshot/5shot"] == scores["RotNet"]["fewshot/5shot"]
    assert "version.torch" in parent.data.tags
    experiment = client.get_experiment_by_name("smoke")
    assert experiment is not None
    child_filter = f"tags.`mlflow.parentRunId` = '{where['run_id']}'"
    children = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id], child_filter)}
    assert children.keys() == {"random", "RotNet", "BoWNet"}
    for name, run in children.items():
        assert run.data.metrics["linear/top1"] == scores[name]["linear/top1"]
    student = children["BoWNet"]
    curve = client.get_metric_history(student.info.run_id, "train/loss")
    assert [point.step for point in curve] == [1, 2]
    assert student.data.metrics["vocabulary/perplexity"] > 1
    watched = "loss floor gamma lr gradient_norm images_per_second input_wait peak_memory_gb workers"
    assert student.data.metrics.keys() >= {f"train/{name}" for name in watched.split()}
    assert any(name.startswith("system/") for name in (children["RotNet"].data.metrics | student.data.metrics))


def test_backbones_can_be_taken_away(smoke: dict[str, Any]) -> None:
    ref = smoke["report"]["rows"][-1]["artifacts"]["backbone"]
    backbone = load_backbone(smoke["store"] / "artifacts" / ref / "backbone.safetensors")
    assert backbone.tap_channels["pool"] == 64
    assert backbone.input_mean.tolist() != [0.5, 0.5, 0.5]  # the statistics of the images went with it


def test_brackets_in_a_name_and_in_a_path_are_text(smoke: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "[old]" / "store"
    shutil.copytree(smoke["store"], store, ignore=shutil.ignore_patterns("mlflow.db"))
    done = run_full("smoke", "--store", store, "--name", "a[/b]", figures=True)
    assert done.returncode == 0, done.stderr
    assert "a[/b]: every one of 20 stages is cached" in done.stdout
    assert f"All of it on one page: {store}/pages/" in done.stdout
    assert f"sqlite:///{store}/mlflow.db" in done.stdout


def test_a_second_run_is_cached_quick_and_equal(smoke: dict[str, Any], tmp_path: Path) -> None:
    started = time.monotonic()
    done = run_full("smoke", "--store", smoke["store"], "--json", tmp_path / "again.json")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60
    assert "every one of 15 stages is cached" in done.stdout
    again = json.loads((tmp_path / "again.json").read_text())
    assert all(stage["cached"] for stage in again["stages"])
    assert metrics(again) == metrics(smoke["report"])
    assert again["mlflow"]["run_id"] != smoke["report"]["mlflow"]["run_id"]
    client = mlflow.MlflowClient(tracking_uri=again["mlflow"]["tracking_uri"])
    experiment = client.get_experiment_by_name("smoke")
    assert experiment is not None
    child_filter = f"tags.`mlflow.parentRunId` = '{again['mlflow']['run_id']}' and tags.model = 'BoWNet'"
    (child,) = client.search_runs([experiment.experiment_id], child_filter)
    assert len(client.get_metric_history(child.info.run_id, "train/loss")) == 2  # the curve comes from the store


def test_dry_run_shows_what_is_cached_and_starts_nothing(smoke: dict[str, Any], tmp_path: Path) -> None:
    fresh = run_full("smoke", "--dry-run", "--store", tmp_path / "none")
    assert fresh.returncode == 0, fresh.stderr
    assert "15 stages, 15 to do" in fresh.stdout
    assert not (tmp_path / "none").exists()
    other = run_full("smoke", "--dry-run", "--store", smoke["store"], "--vocabulary.size", "8")
    assert "15 stages, 6 to do" in other.stdout  # images, random, RotNet and their scores are kept
    states = {
        cells[1].strip(): cells[2].strip()
        for line in other.stdout.splitlines()
        if len(cells := line.split("│")) > 3 and cells[1].strip()
    }
    assert states["RotNet: training"] == "cached"
    assert states["BoWNet: vocabulary"] == states["BoWNet: training"] == "to do"


def kill_during(arguments: list[str], until: Path, pattern: str) -> None:
    """Start the program, wait for a file, then end it as a power cut would."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 200
    while not list(until.glob(pattern)):
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < deadline, f"no {pattern} in {until}"
        time.sleep(0.05)
    # Ray's own agents may linger for half a minute; what could still write into the store must not
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child for child in children if "Train" in child.name()]
    assert workers
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive, f"workers outlive their driver: {alive}"


def test_ctrl_c_says_how_to_go_on(smoke: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(smoke["store"], store, ignore=shutil.ignore_patterns("mlflow.db"))
    arguments = ["smoke", "--student.optimiser.epochs", "500", "--store", str(store)]
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a test that was itself started in the background ignores Ctrl-C, and its children would too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 200
    while not list(store.glob("scratch/student/*/checkpoint.pt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "interrupted; the same command continues where this one stopped"
    _, left = psutil.wait_procs(children, timeout=60)
    alive = [child for child in left if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert not alive, f"outlive an interrupted program: {alive}"


@pytest.mark.faults
def test_killed_driver_continues_to_the_same_digit(smoke: dict[str, Any], tmp_path: Path) -> None:
    """`kill -9` while the student trains; the same command goes on from its checkpoint and ends with equal scores."""
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for store in (disturbed, undisturbed):  # the words are there already; the student is another, longer one
        shutil.copytree(smoke["store"], store, ignore=shutil.ignore_patterns("mlflow.db"))
    longer = ["smoke", "--student.optimiser.epochs", "150"]  # more seconds than workers outlive a driver
    kill_during([*longer, "--store", str(disturbed)], disturbed, "scratch/student/*/checkpoint.pt")
    assert not list(disturbed.glob("artifacts/student/*/history.json.tmp*"))
    done = run_full(*longer, "--store", disturbed, "--json", tmp_path / "a.json")
    assert done.returncode == 0, done.stderr
    done = run_full(*longer, "--store", undisturbed, "--json", tmp_path / "b.json")
    assert done.returncode == 0, done.stderr
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert metrics(a) == metrics(b)
    built = [stage["name"] for stage in b["stages"] if not stage["cached"]]
    assert built == ["student", "features", "linear", "fewshot"]
    (student,) = [row["artifacts"]["backbone"] for row in a["rows"] if row["name"] == "BoWNet"]
    weights = [store / "artifacts" / student / "backbone.safetensors" for store in (disturbed, undisturbed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    histories = [json.loads((path.parent / "history.json").read_text()) for path in weights]
    assert [h["loss"] for h in histories[0]] == [h["loss"] for h in histories[1]]
    gap = max(later["time"] - earlier["time"] for earlier, later in zip(histories[0], histories[0][1:], strict=False))
    assert gap > 2  # it really stopped and went on from a checkpoint, rather than starting again


@pytest.mark.slow
def test_a_plain_task_trains_to_the_same_bits(smoke: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(smoke["store"], store, ignore=shutil.ignore_patterns("mlflow.db", "student"))
    done = run_full("smoke", "--store", store, "--json", tmp_path / "r.json", "--resources.trainer", "task")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert [stage["name"] for stage in report["stages"] if not stage["cached"]] == ["student"]
    ref = report["rows"][-1]["artifacts"]["backbone"]
    files = [where / "artifacts" / ref / "backbone.safetensors" for where in (store, smoke["store"])]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow  # test_own_images.py trains with two workers, too
def test_two_training_workers(smoke: dict[str, Any], tmp_path: Path) -> None:
    """Data parallel on two workers; the number of workers is no part of the key."""
    store = tmp_path / "store"
    shutil.copytree(smoke["store"], store, ignore=shutil.ignore_patterns("mlflow.db", "student"))
    done = run_full("smoke", "--store", store, "--json", tmp_path / "r.json", "--resources.workers", "2")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    built = [stage["name"] for stage in report["stages"] if not stage["cached"]]
    assert built == ["student"]  # all else, the scores of the student included, has the keys of the one-worker run
    key = next(stage["key"] for stage in report["stages"] if stage["name"] == "student")
    manifest = json.loads((store / "artifacts" / "student" / key / "manifest.json").read_text())
    assert manifest["info"]["workers"] == 2


MISTAKES = {
    "unknown preset": (["dmo"], "did you mean demo?"),
    "more words than vectors": (["smoke", "--vocabulary.size", "2000"], "images give"),
    "no such tap": (["smoke", "--vocabulary.tap", "conv4"], "wrn-10-1 has block1, block2, block3"),
    "no such folder": (["smoke", "--data.kind", "folder", "--data.path", "/no/such"], "data.path=/no/such"),
    "store below a file": (["smoke", "--store", "{file}/store"], "store"),
    "store on no disk": (["smoke", "--store", "/proc/nothing"], "/proc/nothing"),
    "json into nowhere": (
        ["smoke", "--store", "{tmp}/s", "--json", "{tmp}/no/folder/x.json"],
        "name a file in a folder",
    ),
    "too many workers": (["smoke", "--store", "{tmp}/s", "--resources.workers", "4000"], "the cluster has"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_line_and_exit_code_2(case: str, tmp_path: Path) -> None:
    arguments, expected = MISTAKES[case]
    file = tmp_path / "file"
    file.write_text("precious")
    done = run_full(*[a.format(file=file, tmp=tmp_path) for a in arguments])
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert expected in line
    assert file.read_text() == "precious"


def test_a_tracking_address_that_makes_no_sense_is_refused(smoke: dict[str, Any]) -> None:
    done = run_full("smoke", "--store", smoke["store"], MLFLOW_TRACKING_URI="nonsense://x")
    assert done.returncode == 2, done.stderr
    assert "error: MLFLOW_TRACKING_URI=nonsense://x: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dead_mlflow_server_costs_a_line_and_no_result(smoke: dict[str, Any], tmp_path: Path) -> None:
    address = "http://127.0.0.1:9"  # nothing listens there
    report = tmp_path / "r.json"
    done = run_full("smoke", "--store", smoke["store"], "--json", report, MLFLOW_TRACKING_URI=address)
    assert done.returncode == 0, done.stderr
    assert "does not answer" in done.stderr
    assert metrics(json.loads(report.read_text())) == metrics(smoke["report"])


def test_presets_state_their_command() -> None:
    for name, make in PRESETS.items():
        assert f"full.py {name}" in (make.__doc__ or "") or f"make {name}" in (make.__doc__ or "")


def test_words_come_with_their_health(smoke: dict[str, Any]) -> None:
    (words,) = (smoke["store"] / "artifacts" / "words").iterdir()
    health = json.loads((words / "health.json").read_text())
    assert (health["size"], health["images"], health["used"] + health["dead"]) == (16, 240, 16)
    assert 1 <= health["perplexity"] <= 16
    assert 0 <= health["label_information"] <= health["label_entropy"]
    assert (words / "health.png").read_bytes().startswith(b"\x89PNG")
    client = mlflow.MlflowClient(smoke["report"]["mlflow"]["tracking_uri"])
    runs = client.search_runs([e.experiment_id for e in client.search_experiments(filter_string="name = 'smoke'")])
    logged = [run.data.metrics["words/perplexity"] for run in runs if "words/perplexity" in run.data.metrics]
    assert logged[-1] == pytest.approx(health["perplexity"])


@pytest.mark.slow
def test_words_that_are_too_poor_stop_the_run_before_training(smoke: dict[str, Any]) -> None:
    new_student = ["--student.optimiser.epochs", "3", "--vocabulary.min-perplexity", "15.99"]
    done = run_full("smoke", "--store", smoke["store"], *new_student)
    assert done.returncode == 2, done.stderr
    assert "error: vocabulary.min_perplexity=15.99: the words have a perplexity of" in done.stderr
