"""A single Ray task, waited for as long as it lives, and tried again elsewhere when its worker or node dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pipelines.machine import Machine
from pipelines.progress import posted
from pipelines.stages.watch import run_watched

T = TypeVar("T")

MAX_FAILURES = 8  # of workers or nodes, after which something else must be wrong
SECONDS_BETWEEN_BEATS = 5.0
OWN_SHARE = 0.02  # of a core, of the thread that works; while it waits for Ray Data it takes 0.007
WHOLE_SHARE = 0.2  # of a core, of all threads; Ray's own and those of a Ray Data that waits take 0.05


def in_one_task(
    function: Callable[..., T], arguments: tuple[Any, ...], machine: Machine, what: str, cpus: float, gpus: float = 0
) -> T:
    """The result of `function(*arguments)`. A task that never gets its CPUs ends with a message."""
    import ray

    board = machine.board
    shorter = min(SECONDS_BETWEEN_BEATS, machine.stall_seconds / 3)

    def alive(*arguments: Any) -> T:
        over = threading.Event()
        is_at_work = diligence(threading.get_ident())

        def beat() -> None:
            while not over.wait(shorter):
                if is_at_work():
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


def diligence(thread: int) -> Callable[[], bool]:
    """Tells whether this process has computed since it was last asked: it lives also where it waits for ever.

    What its threads take while they wait is no work: those of Ray, and of Ray Data, look for news all the time. Work
    that takes less for a while needs one moment of more before the stall's time is over.
    """

    def times() -> tuple[float, float, float]:
        return time.monotonic(), cpu_seconds(thread), time.process_time()

    last = times()

    def is_at_work() -> bool:
        nonlocal last
        now = times()
        passed, own, all_of_it = (after - before for after, before in zip(now, last, strict=True))
        last = now
        return own > OWN_SHARE * passed or all_of_it > WHOLE_SHARE * passed

    return is_at_work


def cpu_seconds(thread: int) -> float:
    """What a thread of this process has taken; 0 where the system does not tell."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
