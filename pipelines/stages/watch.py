"""Waiting for a cluster, but not for ever: what shows no sign of life for long ends with a message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_THREAD = "watched work"
SECONDS_BETWEEN_LOOKS = 5.0


class Stalled(RuntimeError):
    """A cluster that shows no sign of life; the text has the remedy."""


def run_watched(work: Callable[[], None], sign_of_life: Callable[[], object], what: str, seconds: float) -> None:
    """Run `work` in a thread; raise what it raises, and Stalled when `sign_of_life` is the same for so long."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=_THREAD, daemon=True)  # stuck, it must not keep the program
    thread.start()
    last, since = sign_of_life(), time.monotonic()
    while thread.is_alive():
        thread.join(min(SECONDS_BETWEEN_LOOKS, seconds / 10))
        if (now := sign_of_life()) != last:
            last, since = now, time.monotonic()
        if thread.is_alive() and time.monotonic() - since > seconds:
            raise stalled(what, seconds)
    if raised:
        raise raised[0]


def is_at_work() -> bool:
    """Whether something that is watched goes on, after an interruption or a stall."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


def stalled(what: str, seconds: float) -> Stalled:
    return Stalled(
        f"{what}: no sign of life for {seconds:.0f} s. A node is lost and not replaced, or the cluster lacks what the "
        "work asks for (ray status tells). What is finished is kept: the same command continues from there; where this "
        "is only slow, with a longer --resources.stall-minutes"
    )
