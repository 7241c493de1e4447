"""What is shown while it runs: quiet lines in a log, an estimate that ignores the time of starting up."""

import io
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from pipelines.program import Both
from pipelines.progress import Board, Display, describe
from pipelines.store import Artifact, Stage, Store, Workspace


@dataclass(frozen=True)
class Work(Stage):
    name = "work"
    version = 1

    def config(self) -> dict[str, Any]:
        return {}

    def build(self, work: Workspace) -> dict[str, Any]:
        return {}


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
