"""What is shown while it runs: quiet lines in a log, an estimate that ignores the time of starting up."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import pytest
from conftest import ROOT, environment
from rich.console import Console
from rich.table import Table

from pipelines.machine import Machine
from pipelines.program import Both
from pipelines.progress import Board, Display, describe, new_console, posted, print_whole, start_board
from pipelines.store import Artifact, Stage, Store, Workspace


@dataclass(frozen=True)
class Work(Stage):
    name = "work"
    version = 1

    def config(self) -> dict[str, Any]:
        return {}

    def build(self, work: Workspace) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Named(Work):
    text: str = ""

    @property
    def label(self) -> str:
        return self.text


def epoch(number: int, **more: float) -> dict[str, Any]:
    return {"kind": "epoch", "label": "work", "key": "k", "epoch": number, "epochs": 4, "loss": 1.5} | {
        "images_per_second": 321.4,
        **more,
    }


def test_a_record_in_words() -> None:
    assert describe(epoch(2), 61.2) == "epoch 2/4, loss 1.500, 321 images/s, about 61 s left"
    assert describe(epoch(1, accuracy=0.25), None) == "epoch 1/4, loss 1.500, accuracy 0.250, 321 images/s"
    step = {"kind": "step", "epoch": 0, "epochs": 4, "done": 0.5, "images_per_second": 10.0}
    assert describe(step, None) == "epoch 1/4, 10 images/s"
    assert describe(epoch(1, knn=41.26), None) == "epoch 1/4, loss 1.500, knn 41.3%, 321 images/s"
    assert describe({"kind": "step", "epoch": 0, "epochs": 4, "done": 0.0}, None) == "epoch 1/4"
    assert describe({"kind": "iteration", "epoch": 7, "inertia": 2.0}, 3.0) == "iteration 7, inertia 2.000"


def shown(**options: Any) -> tuple[Display, io.StringIO]:
    text = io.StringIO()
    return Display(Console(file=text, width=200), total=12, **options), text


def test_lines_are_not_folded_and_brackets_are_text() -> None:
    """A name such as `a[/b]` would end as an error of markup, `[old]` would vanish; a log has no width to fold at."""
    text = io.StringIO()
    display = Display(Console(file=text, width=80), total=12)
    stage, artifact = Named("a[/b] [old] " * 4), Artifact("work", "k" * 40, "/store")
    display.on_start(stage, artifact)
    display.on_waiting(stage, artifact, "somebody on a machine with a long name")
    display.on_done(stage, artifact, cached=False, seconds=1.2)
    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    assert all("a[/b] [old] a[/b]" in line for line in lines)
    assert lines[-1].endswith("work/" + "k" * 40)


def test_a_table_is_as_wide_as_it_must_be_where_there_is_no_terminal() -> None:
    table = Table("a", "b")
    table.add_row("x" * 90, "y" * 90)
    text = io.StringIO()
    console = Console(file=text, width=80)
    print_whole(table, console)
    assert "x" * 90 in text.getvalue()
    assert "y" * 90 in text.getvalue()
    assert console.width == 80
    narrow = io.StringIO()
    print_whole(table, Console(file=narrow, width=80, force_terminal=True, color_system=None))
    assert max(map(len, narrow.getvalue().splitlines())) <= 80


def test_a_log_gets_a_line_per_stage_and_few_between() -> None:
    display, text = shown(seconds_between_lines=0)
    stage, artifact = Work(), Artifact("work", "abc", "/store")
    display.on_start(stage, artifact)
    display.listen({"kind": "step", "label": "work", "epoch": 0, "epochs": 4, "done": 0.5, "images_per_second": 1.0})
    display.listen(epoch(1))
    display.listen({**epoch(2), "label": "another stage"})
    display.on_done(stage, artifact, cached=False, seconds=1.26)
    display.on_done(stage, artifact, cached=True, seconds=0.1)
    lines = text.getvalue().splitlines()
    assert lines[0] == "[ 1/12] work"
    assert lines[1].startswith("[ 1/12] work: epoch 1/4, loss 1.500")
    assert "1.3 s" in lines[2]
    assert lines[3].startswith("[ 2/12] work")
    assert "cached" in lines[3]
    assert len(lines) == 4  # neither steps nor other stages' records
    assert "\x1b" not in text.getvalue()


def test_lines_between_are_rare_by_default() -> None:
    display, text = shown()
    display.on_start(Work(), Artifact("work", "abc", "/store"))
    for number in range(1, 5):
        display.listen(epoch(number))
    assert len(text.getvalue().splitlines()) == 1


def test_shards_are_counted() -> None:
    display, text = shown(seconds_between_lines=0)
    display.on_start(Work(), Artifact("work", "abc", "/store"))
    for number in (5, 2, 5, 6):  # a task that was run again tells of one of them twice
        display.listen({"kind": "shard", "label": "work", "key": "", "number": number, "epochs": 8})
    assert [line.partition(", about")[0] for line in text.getvalue().splitlines()[1:]] == [
        f"[ 1/12] work: shard {number}/8" for number in (1, 2, 2, 3)
    ]


def test_quiet_says_nothing() -> None:
    display, text = shown(quiet=True, seconds_between_lines=0)
    display.on_start(Work(), Artifact("work", "abc", "/store"))
    display.listen(epoch(1))
    display.on_done(Work(), Artifact("work", "abc", "/store"), cached=False, seconds=1)
    assert text.getvalue() == ""


def test_the_board_gives_each_record_once() -> None:
    board = Board()
    board.post({"a": 1})
    board.post({"a": 2})
    assert board.take() == [{"a": 1}, {"a": 2}]
    assert board.take() == []


def test_a_note_is_told_once_and_not_again_after_the_plan() -> None:
    """Bad images can take an evaluator away that the plan had promised: that must not pass in silence."""
    display, text = shown(quiet=True, told=["linear is left out"])
    store = Store("memory://notes", Both(display))
    for note in ("linear is left out", "few-shot is left out: [58] images", "few-shot is left out: [58] images"):
        store.note(note)
    assert text.getvalue() == "few-shot is left out: [58] images\n"


@contextmanager
def terminal() -> Iterator[tuple[IO[str], list[str]]]:
    """A file that is a terminal; what was written to it is in the list when it is closed."""
    ours, theirs = os.openpty()
    written: list[str] = []
    try:
        with os.fdopen(theirs, "w") as file:
            yield file, written
            file.flush()
            os.set_blocking(ours, False)
            while True:
                written.append(os.read(ours, 65536).decode())
    except BlockingIOError:  # all of it was read
        pass
    finally:
        os.close(ours)


def shown_on_a_terminal() -> str:
    """What two stages and a table write."""
    with terminal() as (file, written):
        console = new_console(file)
        display = Display(console, 2, seconds_between_lines=0)
        for number in range(2):
            display.on_start(Work(), Artifact("work", "abc", "/store"))
            display.listen(epoch(number))
            time.sleep(0.3)  # time for the moving line to move
            display.on_done(Work(), Artifact("work", "abc", "/store"), cached=False, seconds=1)
            display.on_note(f"note {number}")
        display.close()
        console.print(Table("model", title="results"))
    return "".join(written)


def test_a_terminal_has_a_moving_line_and_with_no_color_the_lines_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm-256color", "NO_COLOR": "", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    moving = shown_on_a_terminal()
    assert "\x1b[?25l" in moving  # the cursor is hidden
    assert "\x1b[2m" in moving  # dim
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown_on_a_terminal()
    assert "\x1b" not in plain
    assert [line.split("  ")[0].strip() for line in plain.splitlines()[:3]] == [
        "[1/2] work",
        "[1/2] work: epoch 0/4, loss 1.500, 321 images/s",
        "[1/2] work",
    ]
    assert "note 1" in plain


def test_help_has_no_colours_with_no_color() -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, str(ROOT / "pipelines" / "report.py"), "--help"]
    variables = environment(TERM="xterm-256color", NO_COLOR="1")
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # how the end of a terminal reads
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"--output" in said
    assert b"\x1b" not in said


def test_a_log_has_no_escape_codes(smoke: dict[str, Any]) -> None:
    assert "\x1b" not in smoke["printed"] + smoke["errors"]


def test_a_board_that_is_silent_gives_no_sign_of_life(machine: Machine) -> None:
    import ray

    board = start_board()
    ray.get([board.beat.remote(), board.post.remote({})])
    assert posted(board) == 2
    ray.kill(board)
    assert posted(board) == 2
    assert posted(None) == 0
