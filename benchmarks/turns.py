"""Trainings in processes of their own that take turns: one takes some steps while the others wait, again and again.

So a machine that slows down slows all of them, and none runs beside another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.distributed

STEPS = 10  # of a turn
LOOK = 0.25  # seconds between two looks of those that wait: each takes a core from the one whose turn it is


class Player:
    """Within a training: call `step` at the start of each step. A turn is all between one start and the tenth after it.

    What happens between steps counts, then: input, backward pass, optimiser, records, checkpoints.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._steps, self._started = 0, 0.0

    def step(self) -> None:
        turn, within = divmod(self._steps, STEPS)
        self._steps += 1
        if within:
            return
        if turn and self._speaks():
            seconds = time.perf_counter() - self._started
            write(self._folder / f"{self._name}.memory", f"{memory_gb()}")
            write(self._folder / f"{self._name}.{turn - 1}.done", f"{seconds}")
        begin = self._folder / f"{self._name}.{turn}"
        while not begin.exists():
            time.sleep(LOOK)
        self._started = time.perf_counter()

    def _speaks(self) -> bool:
        return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def memory_gb() -> float:
    """Of this process alone: neither pages of program files nor what it shares with others of its node.

    With the variables of our workers malloc gives nothing back, so that this is the most there was.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(kilobytes) * 1024 / 1e9


def play(
    folder: Path, names: Sequence[str], turns: int, quiet: Callable[[str], AbstractContextManager[None]]
) -> dict[str, list[float]]:
    """Give every player `turns` turns after one to warm up; seconds of each. Within `quiet(name)` others are still.

    A player must be ready to take one more turn, which it may take at any time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns + 1):
        for name in names[:: 1 if turn % 2 else -1]:
            done = folder / f"{name}.{turn}.done"
            with quiet(name):
                (folder / f"{name}.{turn}").touch()
                deadline = time.monotonic() + 600
                while not done.exists():
                    assert time.monotonic() < deadline, f"{name} does not take its turn"
                    time.sleep(LOOK)
            if turn:
                seconds[name].append(float(done.read_text()))
    for name in names:
        (folder / f"{name}.{turns + 1}").touch()
    return seconds


def write(path: Path, text: str) -> None:
    """Whole or not at all, for the other side looks for it."""
    path.with_suffix(".part").write_text(text)
    path.with_suffix(".part").rename(path)
