"""Two programs that take turns: each works in a process of its own, with its own Python, while the other one waits.

The one that waits is stopped with all of its processes, so that loaders that read ahead neither disturb the other side
nor begin their own turn with work that was done in its time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from benchmarks.programs import ROOT, as_in_a_new_terminal
from pipelines.machine import WORKER_VARIABLES

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Side:
    """A program that speaks as benchmarks/peers/turns.py does. Use it as a context manager.

    Both sides have as many threads. The variables of our workers, which set malloc and more, are for ours alone: peers
    run as they do where people start them. Without a `python` it is ours.
    """

    def __init__(self, module: str, *arguments: object, python: str | None = None, threads: int = 1) -> None:
        self._command = [python or sys.executable, "-m", f"benchmarks.peers.{module}", *map(str, arguments)]
        self._own = {} if python else dict(WORKER_VARIABLES)
        self._threads = {name: str(threads) for name in THREADS}

    def variables(self) -> dict[str, str]:
        return {**as_in_a_new_terminal(), **self._own, **self._threads, "PYTHONPATH": str(ROOT)}

    def __enter__(self) -> Side:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self.variables(),
            cwd=ROOT,
            start_new_session=True,
        )
        self._answer()
        self._tell(signal.SIGSTOP)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tell(signal.SIGKILL)
        self._process.wait()
        self._errors.close()

    def turn(self) -> tuple[float, Any]:
        """Seconds of one turn, and what it came to."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self._tell(signal.SIGCONT)
        answer = self._answer()
        self._tell(signal.SIGSTOP)
        return float(answer["seconds"]), answer["result"]

    def _tell(self, number: signal.Signals) -> None:
        """The process and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"{' '.join(self._command)} has ended: {self._errors.read()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def in_turns(ours: Side, other: Side, repeats: int) -> tuple[list[tuple[float, float]], tuple[Any, Any]]:
    """Seconds of both in each of the turns, after one to warm up; and what they last came to."""
    with ours, other:
        sides: Sequence[Side] = (ours, other)
        for side in sides:
            side.turn()
        pairs, results = [], (None, None)
        for turn in range(repeats):
            answers = [side.turn() for side in (sides if turn % 2 else sides[::-1])]
            (a, mine), (b, theirs) = answers if turn % 2 else answers[::-1]
            pairs.append((a, b))
            results = (mine, theirs)
    return pairs, results
