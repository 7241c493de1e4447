"""A pass that can never go on ends with a message; one that is only slow is left alone."""

import re
import subprocess
import sys
import threading
import time

import pytest
from conftest import ROOT, environment

from pipelines.stages.watch import run_watched

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
