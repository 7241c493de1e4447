"""Programs as people start them: in an environment without what a benchmark has set for itself, timed as a whole."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from pipelines.machine import WORKER_VARIABLES

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = ("MLFLOW_TRACKING_URI", "RAY_ADDRESS")
LOOK = 0.25  # seconds between two looks at what a program does
IDLE = 0.2  # of one core: less is what Ray's processes do by themselves


@dataclass(frozen=True)
class Ran:
    printed: str
    seconds: float
    ended: float  # as time.time() tells


def as_in_a_new_terminal() -> dict[str, str]:
    """No server, no cluster, and none of the variables of our workers, which `run_as_worker` has set here."""
    return {k: v for k, v in os.environ.items() if k not in NOT_OURS and k not in WORKER_VARIABLES}


def run(command: Sequence[str]) -> Ran:
    """Until it ends. One that fails is raised with what it has printed."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=as_in_a_new_terminal(), cwd=ROOT)
    seconds, ended = time.perf_counter() - started, time.time()
    _check(command, done.returncode, done.stdout + done.stderr)
    return Ran(done.stdout, seconds, ended)


def idle_part(command: Sequence[str]) -> tuple[float, float]:
    """Seconds that it takes, and the part of them in which all of its processes together do next to nothing."""
    with tempfile.TemporaryFile("w+") as printed:
        started = time.perf_counter()
        program = psutil.Popen(
            command, stdout=printed, stderr=subprocess.STDOUT, env=as_in_a_new_terminal(), cwd=ROOT, text=True
        )
        idle, before, looked = 0.0, Spent(program), started
        while program.poll() is None:
            time.sleep(LOOK)
            now, at = before.again(), time.perf_counter()
            idle += at - looked if now.since(before) < IDLE * (at - looked) else 0.0
            before, looked = now, at
        seconds = time.perf_counter() - started
        printed.seek(0)
        _check(command, program.returncode, printed.read())
    return seconds, idle / seconds


class Spent:
    """CPU seconds of a program and of all that it has started: of each itself, and of those that it has seen end.

    A process whose parent has ended is still known from the look before.
    """

    def __init__(self, program: psutil.Process, known: Sequence[psutil.Process] = ()) -> None:
        self._program = program
        self.own: dict[psutil.Process, float] = {}
        self.of_ended: dict[psutil.Process, float] = {}
        for process in {program, *_children(program), *known}:
            try:
                times = process.cpu_times()
            except psutil.Error:  # it has ended
                continue
            self.own[process] = times.user + times.system
            self.of_ended[process] = times.children_user + times.children_system

    def again(self) -> Spent:
        return Spent(self._program, tuple(self.own))

    def since(self, before: Spent) -> float:
        """What those spent that are there, and those that have ended in between, as far as their parents were told.

        A parent that has seen one end is given all of its time, most of which the look before has counted.
        """
        spent = sum(seconds - before.own.get(process, 0.0) for process, seconds in self.own.items())
        told = sum(seconds - before.of_ended.get(process, 0.0) for process, seconds in self.of_ended.items())
        ended = [process for process in before.own if process not in self.own]
        counted = sum(before.own[process] + before.of_ended[process] for process in ended)
        return spent + max(0.0, told - counted)


def _children(program: psutil.Process) -> list[psutil.Process]:
    try:
        return list(program.children(recursive=True))
    except psutil.Error:
        return []


def _check(command: Sequence[str], code: int, printed: str) -> None:
    assert code == 0, f"{' '.join(command)}: ended with {code}\n{printed[-5000:]}"
