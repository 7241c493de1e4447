"""A pass that can never go on ends with a message; one that is only slow is left alone."""

import threading
import time
from dataclasses import replace

import pytest

from pipelines.machine import Machine
from pipelines.stages import watch
from pipelines.stages.shards import Row, for_each_shard
from pipelines.stages.watch import run_watched


def same(row: Row) -> Row:
    return row


def test_work_that_asks_for_what_the_cluster_does_not_have(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Data itself would wait for the GPU for ever."""
    monkeypatch.setattr(watch, "STALL_SECONDS", 3.0)
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"words: no sign of life for 3 s.*the same command continues"):
        for_each_shard([{"n": 1}], same, replace(machine, gpu=True), "words", gpu=True)
    assert time.monotonic() - started < 30


def test_signs_of_life_keep_it_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STALL_SECONDS", 0.3)
    beats = []

    def slow() -> None:
        for beat in range(10):
            time.sleep(0.1)
            beats.append(beat)

    run_watched(slow, lambda: len(beats), "slow work")
    assert len(beats) == 10
    forever = threading.Event()
    with pytest.raises(RuntimeError, match="stuck work: no sign of life for 0 s"):
        run_watched(lambda: bool(forever.wait()), lambda: 0, "stuck work")
    forever.set()


def test_what_the_work_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        run_watched(fail, lambda: 0, "work")
