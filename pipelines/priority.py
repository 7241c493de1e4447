"""Lets training go first on its own cores: Ray's helper processes wait until one is free, or for some milliseconds.

Around one training Ray keeps about fifteen of them, each awake a hundred times a second. Every time one takes a core
at once, all threads of a step wait for the thread that was there: a tenth of the speed on two cores.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

import psutil

# What nobody waits for while steps are taken: these take what steps leave over.
_PATIENT = (
    "TrainController",
    "SynchronizationActor",
    "PlacementGroupCleaner",
    "PreemptionWatcher",
    "DatasetManager",
    "_StatsActor",
    "DashboardAgent",
)
# What streams, elastic trainings, people or later work may wait for: these keep their share, but take it at the end of
# a time slice.
_POLITE = ("Board", "RuntimeEnvAgent", "IDLE", "_AutoscalingCoordinatorActor")
_WATCHERS = ("dashboard.py", "monitor.py")
_READER_OF_LOGS = "log_monitor.py"  # for drivers that want them on their terminal, which ours never do


def before_helpers() -> None:
    """Called in a training worker: all helpers that Ray has on this node by now stand back for it."""
    raylet = psutil.Process().parent()
    for process in raylet.children() if raylet else ():
        title = re.split(r"[.\s]", "".join(_command(process)[:1]).removeprefix("ray::"))[0]  # ray::Actor.method
        if title in _PATIENT:
            _set(process, "SCHED_IDLE")
        elif title in _POLITE:
            _set(process, "SCHED_BATCH")


def before_watchers() -> None:
    """Called in a driver that has started Ray itself: what Ray has started to watch it stands back, or ends."""
    for process in psutil.Process().children():
        program = _command(process)[:3]  # such as python -u log_monitor.py; the raylet's later arguments name others
        if any(word.endswith(_READER_OF_LOGS) for word in program):
            with suppress(psutil.Error):  # it may have ended
                process.kill()
                process.wait(1)  # it is a child of this process, and would stay as a zombie
        elif any(word.endswith(_WATCHERS) for word in program):
            _set(process, "SCHED_IDLE")


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


def _set(process: psutil.Process, policy: str) -> None:
    """All threads; those that they start later have the same policy. Systems that have none leave it as it is."""
    if not hasattr(os, policy):
        return
    try:
        for thread in process.threads():
            os.sched_setscheduler(thread.id, getattr(os, policy), os.sched_param(0))
    except (psutil.Error, OSError):  # it has ended, or is somebody else's
        pass
