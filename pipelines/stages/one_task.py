"""A single Ray task, waited for as long as it lives, and tried again elsewhere when its worker or node dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pipelines.machine import Machine
from pipelines.progress import posted
from pipelines.stages.watch import run_watched

T = TypeVar("T")

MAX_FAILURES = 8  # of workers or nodes, after which something else must be wrong
SECONDS_BETWEEN_BEATS = 5.0


def in_one_task(
    function: Callable[..., T], arguments: tuple[Any, ...], machine: Machine, what: str, cpus: float, gpus: float = 0
) -> T:
    """The result of `function(*arguments)`. A task that never gets its CPUs ends with a message."""
    import ray

    board = machine.board
    shorter = min(SECONDS_BETWEEN_BEATS, machine.stall_seconds / 3)

    def alive(*arguments: Any) -> T:
        over = threading.Event()

        def beat() -> None:
            while not over.wait(shorter):
                board.beat.remote()

        if board is not None:
            threading.Thread(target=beat, daemon=True).start()
        try:
            return function(*arguments)
        finally:
            over.set()

    task: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=MAX_FAILURES)(alive)
    reference = task.options(name=what).remote(*arguments)
    if board is None:
        return ray.get(reference)
    result: list[T] = []
    run_watched(lambda: result.append(ray.get(reference)), partial(posted, board), what, machine.stall_seconds)
    return result[0]
