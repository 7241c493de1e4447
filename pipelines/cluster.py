"""The cluster as it is now: looked at before each stage, for nodes join and leave while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pipelines.machine import Machine, Resources, survey
from pipelines.reach import Reach

SECONDS_BETWEEN_LOOKS = 5.0


class Cluster:
    """Call it for what a stage may use. What a cluster lacks at the start is refused; later it is waited for."""

    def __init__(
        self,
        resources: Resources,
        board: Any = None,
        tell: Callable[[str], None] = print,
        reach: Reach | None = None,
    ) -> None:
        self.tell = tell
        self._reach = reach
        self._resources, self._board = resources, board
        self._last: Machine | None = None

    @property
    def stall_seconds(self) -> float:
        return self._resources.stall_minutes * 60

    def __call__(self) -> Machine:
        last = self._last
        try:
            now = self._wait_for_nodes()
        except ValueError as error:
            if last is None:
                raise
            self.tell(f"{error}. It had that much when the run began, so the stage waits for nodes to come back")
            return last
        if last is not None and now.describe() != last.describe():
            self.tell(f"the cluster has changed: {now.describe()}")
        self._last = now
        if self._reach is not None:
            self._reach.ask()
            if last is not None:  # the first look is some seconds before the first stage: nodes answer meanwhile
                self._reach.require()
        return now

    def _wait_for_nodes(self) -> Machine:
        """What an autoscaler may bring is asked for, as long as `wait_minutes` allow; then the refusal stands."""
        deadline, asked = time.monotonic() + self._resources.wait_minutes * 60, False
        try:
            while True:
                try:
                    return survey(self._resources, self._board)
                except ValueError as error:
                    if time.monotonic() >= deadline:
                        raise
                    if not asked:
                        self.tell(f"{error}. Waiting {self._resources.wait_minutes:g} minutes for nodes to join")
                asked = True
                self._ask_autoscaler()
                time.sleep(min(SECONDS_BETWEEN_LOOKS, max(0.0, deadline - time.monotonic())))
        finally:
            if asked:  # a wish that outlives the program would keep nodes, and their cost, for ever
                _request([])

    def _ask_autoscaler(self) -> None:
        wanted = self._resources
        bundle = {"CPU": wanted.cpus_per_worker or 1} | ({"GPU": 1} if wanted.gpu else {})
        _request([bundle] * (wanted.workers or 1))


def _request(bundles: list[dict[str, int]]) -> None:
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=bundles)
