"""A pass that can never go on ends with a message; one that is only slow is left alone."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from conftest import ROOT, environment

from pipelines.machine import Machine
from pipelines.progress import start_board
from pipelines.stages.one_task import diligence, in_one_task
from pipelines.stages.watch import Stalled, run_watched

ASKS_FOR_A_GPU = """
from dataclasses import replace
from pipelines.machine import Resources, connect, survey
from pipelines.stages.shards import for_each_shard

connect()
machine = replace(survey(Resources(stall_minutes=0.05)), gpu=True)
for_each_shard([{"n": 1}], dict, machine, "words", gpu=True)
"""


def test_work_that_asks_for_what_the_cluster_does_not_have() -> None:
    """Ray Data would wait for the GPU for ever. In a program of its own, as what is stuck stays so to its end."""
    command = [sys.executable, "-c", ASKS_FOR_A_GPU]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), cwd=ROOT)
    assert done.returncode == 1
    assert re.search(r"words: no sign of life for 3 s.*the same command continues", done.stderr)


def test_signs_of_life_keep_it_going() -> None:
    beats = []

    def slow() -> None:
        for beat in range(10):
            time.sleep(0.1)
            beats.append(beat)

    run_watched(slow, lambda: len(beats), "slow work", 0.3)
    assert len(beats) == 10
    forever = threading.Event()
    with pytest.raises(RuntimeError, match="stuck work: no sign of life for 0 s"):
        run_watched(lambda: bool(forever.wait()), lambda: 0, "stuck work", 0.3)
    forever.set()


def test_what_the_work_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        run_watched(fail, lambda: 0, "work", 60)


def computing() -> Callable[[float], str]:
    """Made in here, so that a worker gets it by value."""

    def compute(seconds: float) -> str:
        end, x = time.monotonic() + seconds, 1.0
        while time.monotonic() < end:
            x = (x * 1.1) % 7
        return f"computed for {seconds:g} s"

    return compute


def test_a_task_that_sleeps_is_given_up_and_one_that_computes_is_not(machine: Machine) -> None:
    """Both live, and their processes can be asked; two seconds are given, and the work takes longer."""
    in_one_task(computing(), (0.0,), machine, "warming up", 1)  # a worker that has yet to start gives no sign
    watched = replace(machine, board=start_board(), stall_seconds=2.0)
    assert in_one_task(computing(), (5.0,), watched, "computing", 1) == "computed for 5 s"
    with pytest.raises(Stalled, match="asleep: no sign of life for 2 s"):
        in_one_task(time.sleep, (8.0,), watched, "asleep", 1)


def test_work_is_told_by_the_time_it_takes() -> None:
    """A tenth of the time is enough; waiting is none, nor is looking for news now and then."""

    def after(work: Callable[[], object]) -> bool:
        is_at_work = diligence(threading.get_ident())
        work()
        return is_at_work()

    compute = computing()
    assert after(lambda: compute(0.3))
    assert after(lambda: (compute(0.06), time.sleep(0.5)))
    assert not after(lambda: time.sleep(0.5))
    assert not after(lambda: [time.sleep(0.05) for _ in range(20)])
