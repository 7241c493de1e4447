"""How programs end: one line and an exit code; a traceback is kept in a file, or shown with --debug."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import ray
import torch
from conftest import ROOT

from pipelines import export
from pipelines.ending import answered
from pipelines.stages.watch import stalled
from pipelines.store import command_line


def defect() -> None:
    raise KeyError("size")


def raising(error: BaseException) -> Callable[[], None]:
    def program() -> None:
        raise error

    return program


@pytest.mark.parametrize("store", [["--store", "store"], ["--store=store"], []])
def test_the_traceback_of_a_defect_is_kept_in_the_store(
    store: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("store").mkdir()
    assert answered(defect, ["demo", *store]) == 1
    (kept,) = Path("store/errors").iterdir()
    assert capsys.readouterr() == ("", f"error: internal: KeyError: 'size'; the traceback is in {kept.resolve()}\n")
    assert "in defect\n    raise KeyError" in kept.read_text()


def test_where_there_is_no_store_it_is_kept_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert answered(defect, ["--store", str(tmp_path / "none")]) == 1
    (kept,) = tmp_path.iterdir()
    assert capsys.readouterr().err == f"error: internal: KeyError: 'size'; the traceback is in {kept}\n"
    assert "in defect\n    raise KeyError" in kept.read_text()


def test_where_nothing_can_be_written_the_line_says_how_to_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert answered(defect, ["--store", "nonsense://store"]) == 1
    assert capsys.readouterr().err.endswith("'size'; run it again with --debug for the traceback\n")


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (ValueError("vocabulary.size=1: use 2..65536"), "error: vocabulary.size=1: use 2..65536\n", 2),
        (ValueError("\n  \n  a formula: no such symbol\n^"), "error: a formula: no such symbol\n", 2),
        (FileNotFoundError(2, "No such file", "a.json"), "error: [Errno 2] No such file: 'a.json'\n", 2),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16"),
            "error: memory: a GPU's is full (CUDA out of memory); use a smaller batch for what was running, such as "
            "--student.optimiser.batch 64, or --student.optimiser.accumulate 2, which computes it in parts\n",
            2,
        ),
        (KeyboardInterrupt(), "interrupted; the same command continues where this one stopped\n", 130),
    ],
)
def test_what_people_can_mend_leaves_nothing_behind(
    error: BaseException, line: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(raising(error), ["--store", str(tmp_path)]) == code
    assert capsys.readouterr().err == line
    assert not list(tmp_path.iterdir())


def test_a_cluster_that_failed_is_no_defect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = ["--store", str(tmp_path)]
    assert answered(raising(ray.exceptions.WorkerCrashedError()), there) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: cluster: WorkerCrashedError: The worker died unexpectedly")
    assert "; the same command goes on from what is finished; the traceback is in " in said
    full = ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory.\nMemory on the node")
    assert answered(raising(full), there) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "error: cluster: a node's memory was full, and Ray ended a task there; use a larger --resources"
    )
    assert said.count("\n") == 1
    assert answered(raising(stalled("words", 3)), there) == 1
    assert capsys.readouterr().err.startswith("error: words: no sign of life for 3 s. ")


def test_debug_shows_it_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(defect, ["--store", str(tmp_path), "--debug"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("\nerror: internal: KeyError: 'size'\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (command_line.main, ["ls", "--store", "nowhere"]),
        (export.main, ["--weights", "nowhere", "--format", "timm", "--out", "a.safetensors"]),
        (export.main, ["--wieghts", "nowhere"]),
    ],
)
def test_programs_of_their_own_kind_end_alike(
    program: Callable[[list[str]], int],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert program([*arguments, "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["pipelines/full.py", "demo", "--help"],
        ["pipelines/full.py", "--list"],
        ["pipelines/export.py", "--help"],
        ["-m", "pipelines.store", "ls", "--store", "STORE"],
    ],
)
def test_who_stops_reading_makes_no_error(command: list[str], tmp_path: Path) -> None:
    """As `... | head` does; here the reader is gone before the first word."""
    reader, writer = os.pipe()
    os.close(reader)
    there = [str(tmp_path) if part == "STORE" else part for part in command]
    (tmp_path / "artifacts").mkdir()
    done = subprocess.run([sys.executable, *there], stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # 1 where rich, which prints tables, ends the program


def test_a_pipe_that_is_not_standard_output_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(raising(BrokenPipeError(32, "Broken pipe")), ["--store", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: [Errno 32] Broken pipe\n"
