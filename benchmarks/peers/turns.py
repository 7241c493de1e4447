"""One side of a comparison: it waits for a line, works, and answers with the seconds that it took."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Turns:
    """Call `begin` at the start of each turn: what lies between two calls is a turn. What is printed goes to stderr."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._started: float | None = None

    def begin(self, result: Any = None) -> None:
        if self._started is None:
            self._say({"ready": True})
        else:
            self._say({"seconds": time.perf_counter() - self._started, "result": result})
        if not sys.stdin.readline():
            os._exit(0)  # the other end is closed: also data loaders and threads shall end
        self._started = time.perf_counter()

    def play(self, work: Callable[[], Any]) -> None:
        result = None
        while True:
            self.begin(result)
            result = work()

    def _say(self, answer: dict[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")


class Every:
    """Of a training: begins a turn at every n-th step."""

    def __init__(self, steps: int) -> None:
        self._turns, self._steps, self._done = Turns(), steps, 0

    def step(self) -> None:
        if self._done % self._steps == 0:
            self._turns.begin()
        self._done += 1
