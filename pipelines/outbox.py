"""Calls to a server that may be away for a while: they are made in order, and wait until it answers again."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from threading import RLock

log = logging.getLogger("pipelines.tracking")

PAUSE = 30.0  # seconds after a call in vain until the next: each takes some, which a training would wait for


class Outbox:
    """Whoever puts a call in makes those that are waiting; a call that failed comes first the next time."""

    def __init__(self, server: str, is_refusal: Callable[[Exception], bool], pause: float | None = None) -> None:
        """`is_refusal` tells an answer that will not change, and ends the call, from a server that is not there."""
        self._server, self._is_refusal = server, is_refusal
        self._pause = PAUSE if pause is None else pause
        self._waiting: deque[Callable[[], object]] = deque()
        self._again = 0.0  # when the next call may be made
        self._lock = RLock()

    def put(self, call: Callable[[], object]) -> None:
        with self._lock:
            self._waiting.append(call)
            if time.monotonic() >= self._again:
                self._send()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def flush(self, seconds: float) -> bool:
        """Make all calls that wait, for some time; whether none is left. Without time, not while there is a pause."""
        deadline = time.monotonic() + seconds
        with self._lock:
            if not seconds and time.monotonic() < self._again:
                return self.is_empty
            while not self._send() and time.monotonic() < deadline:
                time.sleep(min(1.0, self._pause))
        return self.is_empty

    def _send(self) -> bool:
        while self._waiting:
            try:
                self._waiting[0]()
            except Exception as error:  # results are in the store; tracking must not end a run
                if not self._is_refusal(error):
                    if not self._again:
                        log.warning(
                            "MLflow at %s does not answer (%s); it is asked again later, and results are kept in the "
                            "store",
                            self._server,
                            type(error).__name__,
                        )
                    self._again = time.monotonic() + self._pause
                    return False
                log.warning("MLflow at %s refuses a call (%s)", self._server, (str(error).splitlines() or [""])[0])
            self._waiting.popleft()
        self._again = 0.0
        return True
