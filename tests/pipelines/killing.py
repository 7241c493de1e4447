"""For tests that kill processes and nodes of a real Ray cluster at the right moment."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil


def workers_of(node: Any, doing: str) -> list[psutil.Process]:
    """The workers of a node of our cluster that do something at this moment; Ray names processes by what they do."""
    found = []
    for child in psutil.Process(node.all_processes["raylet"][0].process.pid).children():
        try:
            if doing in " ".join(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def kill_all(processes: list[psutil.Process]) -> None:
    """With SIGKILL, whatever of them is still there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def wait_for(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found


def while_it_runs(disturb: Callable[[], Any], run: Callable[[], Any]) -> tuple[Any, Any]:
    """What both return; `run` has a thread of its own, for Ray starts nodes in the main one only."""
    with ThreadPoolExecutor(1) as other:
        running = other.submit(run)
        disturbed = disturb()
        return disturbed, running.result()
