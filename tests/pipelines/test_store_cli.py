"""The command line of the store, as people type it: text, exit codes, and never a traceback."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipelines.store import Artifact, Stage, Store, Workspace
from pipelines.store.command_line import main
from pipelines.store.locks import single_flight

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Text(Stage):
    name: ClassVar[str] = "text"
    version: ClassVar[int] = 1
    text: str
    source: Artifact | None = None

    def config(self) -> dict[str, Any]:
        return {"text": self.text}

    def inputs(self) -> dict[str, Artifact]:
        return {"source": self.source} if self.source else {}

    def build(self, work: Workspace) -> dict[str, Any]:
        work.write_bytes("text", self.text.encode())
        return {"length": len(self.text)}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipelines.store", *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "BOWNET_STORE"}
    return subprocess.run(
        command, cwd=REPOSITORY, env=variables | environment, capture_output=True, text=True, check=False
    )


def assert_refused(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert all(part in result.stderr for part in parts), result.stderr


@dataclass(frozen=True)
class Example:
    root: str
    first: Artifact
    second: Artifact
    unused: Artifact


@pytest.fixture
def example(tmp_path: Path) -> Example:
    store = Store(tmp_path / "store")
    first = store.get(Text("one"))
    second = store.get(Text("two", first))
    unused = store.get(Text("unused" * 1000))
    store.record_run("monday", [second.key], {"preset": "demo"})
    return Example(store.root, first, second, unused)


def test_ls(example: Example) -> None:
    half = Store(example.root).plan(Text("half"))
    half.folder.write_bytes("text", b"ha")
    os.truncate(Path(example.unused.path("text")), 7)
    result = run("ls", "--store", example.root)
    assert result.returncode == 0
    assert result.stderr == ""
    header, *lines = [line.split() for line in result.stdout.splitlines()]
    assert header == ["stage", "key", "size", "age", "runs", "state"]
    rows = {line[1]: (line[0], line[-2], line[-1]) for line in lines}
    assert rows == {
        example.first.key: ("text", "1", "whole"),
        example.second.key: ("text", "1", "whole"),
        example.unused.key: ("text", "0", "corrupt"),
        half.key: ("text", "0", "half-built"),
    }


def test_store_from_the_environment(example: Example) -> None:
    assert example.second.key in run("ls", BOWNET_STORE=example.root).stdout


def test_show_by_prefix(example: Example) -> None:
    result = run("show", example.second.key[:12], "--store", example.root)
    assert result.returncode == 0
    text, _, ancestry = result.stdout.partition("\n\n")
    assert json.loads(text)["info"] == {"length": 3}
    assert ancestry.splitlines() == [example.second.ref, f"  source: {example.first.ref}"]


def test_show_refuses_unknown_and_ambiguous(example: Example) -> None:
    assert_refused(run("show", "zz", "--store", example.root), "key=zz", "no such artifact")
    assert_refused(run("show", "", "--store", example.root), "could be", example.first.ref, "more digits")
    half = Store(example.root).plan(Text("half"))
    half.folder.write_bytes("text", b"ha")
    assert_refused(run("show", half.key, "--store", example.root), "not built")


def test_verify(example: Example) -> None:
    result = run("verify", "--store", example.root)
    assert result.returncode == 0
    assert result.stdout.startswith("3 whole (")
    assert result.stdout.endswith("KB), 0 corrupt\n")
    Path(example.first.path("text")).write_bytes(b"onf")
    result = run("verify", "--store", example.root)
    assert result.returncode == 1
    assert f"corrupt: {example.first.ref}: text has another sha256" in result.stdout
    assert "2 whole" in result.stdout


def test_gc_asks_first(example: Example) -> None:
    result = run("gc", "--store", example.root)
    assert result.returncode == 0
    assert example.unused.ref in result.stdout
    assert example.first.key not in result.stdout
    assert "would free" in result.stdout
    assert example.unused.exists()
    result = run("gc", "--yes", "--store", example.root)
    assert result.returncode == 0
    assert "\nfreed " in result.stdout
    assert not example.unused.exists()
    assert example.first.exists()
    assert example.second.exists()


def test_gc_spares_the_locked(example: Example) -> None:
    with single_flight(example.root, example.unused.key):
        result = run("gc", "--yes", "--store", example.root)
    assert f"kept: {example.unused.key} is being built by process {os.getpid()}" in result.stdout
    assert example.unused.exists()


def test_gc_drops_old_runs(example: Example) -> None:
    runs = Path(example.root) / "runs"
    record = json.loads((runs / "monday.json").read_text())
    (runs / "monday.json").write_text(json.dumps(record | {"recorded": "2020-01-06T00:00:00+00:00"}))
    Store(example.root).record_run("today", [example.first.ref])
    assert "run monday, recorded 2020-01-06" in run("gc", "--keep-days", "30", "--store", example.root).stdout
    assert (runs / "monday.json").exists()
    run("gc", "--keep-days", "30", "--yes", "--store", example.root)
    assert os.listdir(runs) == ["today.json"]
    assert example.first.exists()
    assert not example.second.exists()
    assert_refused(run("gc", "--keep-days", "-1", "--store", example.root), "keep_days=-1")


@pytest.mark.parametrize("command", [["ls"], ["gc"], ["gc", "--yes"], ["verify"], ["show", "ab"]])
def test_missing_store_is_not_created(tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert main([*command, "--store", str(missing)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"store={missing}: there is no such store" in said
    assert not missing.exists()


@pytest.mark.parametrize("arguments", [[], ["nosuch"], ["show"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("error: ")
    assert said.endswith("; --help shows what there is\n")


def test_no_traceback_for_the_caller(tmp_path: Path) -> None:
    assert_refused(run("ls", "--store", str(tmp_path / "missing")), "no such store", "$BOWNET_STORE")
    (tmp_path / "file").write_text("")
    assert_refused(run("ls", "--store", str(tmp_path / "file/x")), "no such store")
    assert_refused(run("ls", "--store", str(tmp_path / "file")), "not a folder")


def test_answers_can_be_had_as_json(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    key = store.get(Text("a")).key
    out = tmp_path / "out.json"
    answers = {"ls": "artifacts", f"show {key}": "manifest", "verify": "whole", "gc": "would_free"}
    for command, expected in answers.items():
        assert main([*command.split(), "--store", store.root, "--json", str(out)]) == 0
        assert expected in json.loads(out.read_text())
    assert main(["ls", "--store", store.root, "--json", str(tmp_path / "no" / "folder.json")]) == 2
