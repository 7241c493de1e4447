"""MLflow behind a real server that goes away and comes back, and what of its address may be shown."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mlflow
import pytest
from conftest import ROOT, run_full
from mlflow_server import free_port, server

from pipelines.outbox import Outbox
from pipelines.presets import PRESETS
from pipelines.store.artifacts import commit
from pipelines.sweeps.space import changed
from pipelines.tracking import Tracking, describe, how_to_look


class Away(Exception):
    pass


class Refused(Exception):
    pass


def test_calls_wait_in_order_and_refused_ones_do_not_hold_others_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    said: list[str] = []
    monkeypatch.setattr("pipelines.outbox.log.warning", lambda text, *values: said.append(text % values))
    there = False

    def call(name: str) -> None:
        if not there:
            raise Away
        if name == "bad":
            raise Refused("never")
        done.append(name)

    outbox = Outbox("here", lambda error: isinstance(error, Refused), pause=0.0)
    for name in ("a", "bad", "b"):
        outbox.put(lambda name=name: call(name))
    assert (done, outbox.is_empty, outbox.flush(0)) == ([], False, False)
    there = True
    outbox.put(lambda: call("c"))
    assert (done, outbox.is_empty) == (["a", "b", "c"], True)
    assert sum("does not answer (Away)" in line for line in said) == 1, "one line for one absence"
    assert sum("refuses a call (never)" in line for line in said) == 1


def test_a_program_that_stands_still_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped while it made the tables of the sqlite file."""
    monkeypatch.setattr("pipelines.tracking.LOCK_SECONDS", 0.5)
    with (tmp_path / "a.db.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=r"a\.db\.lock: another program has held it for 0 s; .*run again$"):
            Tracking(f"sqlite:///{tmp_path}/a.db", "locked", {}, {})


def test_a_server_that_is_away_is_not_asked_at_every_step() -> None:
    asked: list[float] = []

    def call() -> None:
        asked.append(time.monotonic())
        raise Away

    outbox = Outbox("here", lambda error: False, pause=60.0)
    for _ in range(10):
        outbox.put(call)
    assert len(asked) == 1


def test_what_hangs_is_not_asked_again_where_there_is_no_time_to_wait() -> None:
    """At the end of a run there are files, one after the other, and each attempt would take half a minute."""
    asked: list[float] = []

    def call() -> None:
        asked.append(time.monotonic())
        raise Away

    outbox = Outbox("here", lambda error: False, pause=60.0)
    outbox.put(call)
    assert [outbox.flush(0) for _ in range(3)] == [False] * 3
    assert len(asked) == 1
    assert not outbox.flush(0.1)
    assert len(asked) > 1  # where there is time, it is used


def test_passwords_of_an_address_are_not_shown() -> None:
    assert how_to_look("https://me:secret@host/a") == "in a browser, at https://me:***@host/a"
    assert "secret" not in how_to_look("postgresql://me:secret@host:5432/db")


@pytest.mark.slow
def test_the_end_of_a_run_prints_no_password(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """MLflow itself would print a link to the run, from the address as it is."""
    with server(tmp_path, free_port()) as address:
        host = address.removeprefix("http://")
        tracking = Tracking(f"http://me:hush-hush@{host}", "quiet", {}, {})
        tracking.finish([{"name": "BoWNet", "metrics": {"linear/top1": 50.0}}])
        client = mlflow.MlflowClient(address)
        runs = client.search_runs([str(tracking.experiment_id)])
        assert [run.info.status for run in runs] == ["FINISHED"] * 2
    said = "".join(capfd.readouterr())
    assert "hush-hush" not in said
    assert "View run" not in said


def test_a_run_writes_no_password_down(smoke: dict[str, Any], tmp_path: Path) -> None:
    """Neither in what is printed, nor in its record, its page, MLflow's tables and files, and the JSON."""
    away = ["--transfer.data.path", "s3://me:hush-hush@bucket/a?secret_key=hush-hush"]  # which smoke does not read
    done = run_full("smoke", *away, "--store", smoke["store"], "--json", tmp_path / "r.json", figures=True)
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "r.json").read_text())["mlflow"]["run_id"]
    written = [smoke["store"] / "results" / f"{run}.json", smoke["store"] / "pages" / f"{run}.html"]
    for file in written:
        assert "s3://me:***@bucket/a?secret_key=***" in file.read_text()
    files = [*smoke["store"].glob("mlflow*/**/*.html"), *smoke["store"].glob("mlflow.db*"), tmp_path / "r.json"]
    assert len(files) >= 3
    assert not [file for file in [*written, *files] if b"hush-hush" in file.read_bytes()]
    refused = run_full("smoke", "--data.kind", "webdataset", "--data.path", "none://me:hush-hush@bucket")
    assert refused.returncode == 2
    assert "hush-hush" not in done.stdout + done.stderr + refused.stdout + refused.stderr


def test_how_to_look_at_runs() -> None:
    assert how_to_look("http://127.0.0.1:5001") == "in a browser, at http://127.0.0.1:5001"
    assert "mlflow ui --backend-store-uri sqlite:////tmp/a.db --host 127.0.0.1" in how_to_look("sqlite:////tmp/a.db")


@pytest.mark.slow
def test_a_server_that_comes_back_has_missed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.outbox.PAUSE", 0.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    port = free_port()
    settings = {"seed": 3, "data": {"path": "s3://me:secret@bucket/a"}}
    rows = [{"name": "BoWNet", "metrics": {"linear/top1": 50.0}}]
    with server(tmp_path, port) as address:
        tracking = Tracking(address, "outage", settings, {})
        tracking._log_history("BoWNet", "key", "train", [{"epoch": 1, "time": 1.0, "loss": 4.0}])
    tracking._log_history("BoWNet", "key", "train", [{"epoch": 2, "time": 2.0, "loss": 3.0}])
    tracking._log_history("RotNet", "other", "train", [{"epoch": 1, "time": 2.0, "loss": 1.0}])
    with server(tmp_path, port) as address:
        tracking.finish(rows)
        client = mlflow.MlflowClient(address)
        runs = {run.info.run_name: run for run in client.search_runs([str(tracking.experiment_id)])}
        assert runs.keys() == {"outage", "BoWNet", "RotNet"}
        assert {run.info.status for run in runs.values()} == {"FINISHED"}
        assert runs["outage"].data.params == {"seed": "3", "data.path": "s3://me:***@bucket/a"}
        assert runs["outage"].data.metrics["linear/top1"] == 50.0
        losses = client.get_metric_history(runs["BoWNet"].info.run_id, "train/loss")
        assert [(m.step, m.value) for m in losses] == [(1, 4.0), (2, 3.0)]


def tags_of(uri: str, experiment: str) -> dict[str, dict[str, str]]:
    client = mlflow.MlflowClient(uri)
    return {run.info.run_name: run.data.tags for run in client.search_runs([experiment])}


def test_rows_of_the_paper_are_told_by_settings_and_not_by_name(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    exp = PRESETS["cifar100/bownet"]()
    linear = changed(exp, {"student.head": "linear"}).model_dump(mode="json")
    other = changed(exp, {"student.optimiser.lr": 0.2}).model_dump(mode="json")
    mine = exp.model_dump(mode="json")
    for name, settings in {"mine": mine, "linear": linear, "other": other, "sweep": {"sweep": {}, **mine}}.items():
        tracking = Tracking(uri, exp.name, settings, {}, name)
        tracking._log_metrics(f"BoWNet of {name}", {"a": 1.0})
        tracking._log_metrics("BoWNet", {"a": 1.0}) if name == "linear" else None
    tags = tags_of(uri, str(tracking.experiment_id))
    told = {name: set(some["paper.rows"].split("; ")) for name, some in tags.items() if "paper.rows" in some}
    assert told.keys() == {"mine", "linear", "BoWNet"}
    assert {"cifar100: BoWNet", "cifar100: RotNet", "cifar100_vocabulary_size: K=2048"} <= told["mine"]
    assert told["linear"] == told["BoWNet"] == {"cifar100_ablations: BoWNet linear Omega"}


def test_pages_show_the_program_and_its_commit(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracking = Tracking(uri, "x", {}, {}, "one")
    tags = tags_of(uri, str(tracking.experiment_id))["one"]
    assert (tags["mlflow.source.name"], tags["mlflow.source.type"]) == (Path(sys.argv[0]).name, "LOCAL")
    assert tags.get("git.commit") == tags.get("mlflow.source.git.commit") == commit()
    kind = mlflow.MlflowClient(uri).get_experiment(str(tracking.experiment_id)).tags["mlflow.experimentKind"]
    assert kind == "custom_model_development"


def test_a_server_that_never_answers_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection and says nothing."""
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    Tracking(f"sqlite:///{tmp_path}/mlflow.db", "x", {}, {})
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "10"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        tracking = Tracking(f"http://127.0.0.1:{silent.getsockname()[1]}", "x", {}, {})
        for _ in range(8):
            tracking.log_file(tmp_path / "mlflow.db")
        tracking.finish([])
        assert 1 <= time.monotonic() - started < 5  # it is asked once, by the first call
    assert tracking.run_id is None


def test_what_a_killed_sweep_left_running_is_ended(tmp_path: Path) -> None:
    """Its own run, that of a trial and of a model; not another sweep's, another experiment's, nor of other seeds."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mine = {"sweep": "ablations", "sweep.base": "b1", "sweep.seeds": "0"}
    killed = Tracking(uri, "x", {}, {}, "killed", None, mine)
    trial = Tracking(uri, "x", {}, {}, "trial", killed.run_id, mine)
    trial.finish([])
    stopped = Tracking(uri, "x", {}, {}, "stopped", killed.run_id, mine)
    stopped._log_metrics("BoWNet", {"a": 1.0})
    for number, tags in enumerate(({"sweep": "layer"}, {"sweep.base": "b2"}, {"sweep.seeds": "1"})):
        Tracking(uri, "x", {}, {}, f"other {number}", None, mine | tags)
    parent = Tracking(uri, "x", {}, {}, "again", None, mine)
    parent.end_left_over()
    runs = mlflow.MlflowClient(uri).search_runs([str(parent.experiment_id)])
    ended = {"killed": "KILLED", "trial": "FINISHED", "stopped": "KILLED", "BoWNet": "KILLED"}
    going_on = dict.fromkeys(("other 0", "other 1", "other 2", "again"), "RUNNING")
    assert {run.info.run_name: run.info.status for run in runs} == ended | going_on


def test_a_sweep_that_ends_ends_its_own_trials(tmp_path: Path) -> None:
    """Those that ASHA has ended, and their models; the same command may run a second time beside it."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    sweep = {"sweep": "ablations", "sweep.base": "b1", "sweep.seeds": "0"}
    parents = {name: Tracking(uri, "x", {}, {}, name, None, sweep) for name in ("mine", "other")}
    for name, parent in parents.items():
        trial = Tracking(uri, "x", {}, {}, f"{name}, trial", parent.run_id, sweep | {"sweep.run": str(parent.run_id)})
        trial._log_metrics(f"{name}, model", {"a": 1.0})
    parents["mine"].end_trials()
    runs = mlflow.MlflowClient(uri).search_runs([str(parents["mine"].experiment_id)])
    killed = {run.info.run_name for run in runs if run.info.status == "KILLED"}
    assert (len(runs), killed) == (6, {"mine, trial", "mine, model"})


BEGIN = "import sys; from pipelines.tracking import Tracking; print(Tracking(sys.argv[1], 'x', {}, {}).run_id)"


def test_programs_that_start_at_once_on_a_new_store(tmp_path: Path) -> None:
    """MLflow would make the tables of the file twice, and fail."""
    command = [sys.executable, "-c", BEGIN, f"sqlite:///{tmp_path}/mlflow.db"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    runs = [program.communicate(timeout=120)[0].strip() for program in running]
    assert [program.returncode for program in running] == [0, 0, 0]
    assert len(set(runs)) == 3
    assert "None" not in runs


def test_lists_are_described_in_words() -> None:
    said = describe("demo", {"teacher": {"kind": "rotation"}, "evaluators": ["linear", "fewshot"], "seed": 0})
    assert said == "`demo` teacher: rotation, evaluators: linear + fewshot, seed: 0."
