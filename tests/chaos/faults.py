"""What clusters do to programs, done on purpose: each fault is injected, and after some seconds mended."""

from __future__ import annotations

import contextlib
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import ClassVar

import psutil

from tests.chaos.driver import Driver
from tests.chaos.three_nodes import ThreeNodes, processes_of, raylet_of
from tests.pipelines.killing import kill_all


class Fault(ABC):
    """Injects itself into a run; tells whom it hit, and after how many seconds it wants to be mended."""

    name: ClassVar[str]

    @abstractmethod
    def strike(self, driver: Driver, random: Random) -> tuple[str, float] | None:
        """None if there is nothing to hit at the moment."""

    def mend(self) -> None:  # noqa: B027
        """Called once after each strike."""


class WorkerKilled(Fault):
    name = "worker killed"

    def __init__(self, nodes: ThreeNodes) -> None:
        self._nodes = nodes

    def strike(self, driver: Driver, random: Random) -> tuple[str, float] | None:
        working = self._nodes.at_work()
        if not working:
            return None
        _, victim = random.choice(working)
        with contextlib.suppress(psutil.Error):
            title = victim.cmdline()[0]
            kill_all([victim])
            return title, 0.0
        return None


class NodeLost(Fault):
    name = "node lost, replaced"

    def __init__(self, nodes: ThreeNodes) -> None:
        self._nodes = nodes

    def strike(self, driver: Driver, random: Random) -> tuple[str, float] | None:
        node = random.choice(self._nodes.others)
        said = f"{sum(n is node for n, _ in self._nodes.at_work())} at work"
        self._nodes.lose(node)
        return said, random.uniform(0, 8)

    def mend(self) -> None:
        self._nodes.others.append(self._nodes.add())


class NodeSlow(Fault):
    name = "node stands still"

    def __init__(self, nodes: ThreeNodes) -> None:
        self._nodes = nodes
        self._stopped: list[psutil.Process] = []

    def strike(self, driver: Driver, random: Random) -> tuple[str, float] | None:
        node = random.choice(self._nodes.others)
        self._stopped = [*processes_of(node), raylet_of(node)]
        for process in self._stopped:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        return f"{len(self._stopped)} processes", random.uniform(3, 12)

    def mend(self) -> None:
        for process in self._stopped:
            with contextlib.suppress(psutil.Error):
                process.resume()


class DriverKilled(Fault):
    name = "driver killed, started again"

    def strike(self, driver: Driver, random: Random) -> tuple[str, float] | None:
        driver.kill()
        driver.start()
        return "", 0.0


class DiskFull(Fault):
    name = "disk full"

    def __init__(self, disk: Path) -> None:
        """`disk` is a file system of its own, of a few MB."""
        self._ballast = disk / "ballast"

    def strike(self, driver: Driver, random: Random) -> tuple[str, float] | None:
        fill(self._ballast)
        return "", random.uniform(1, 6)

    def mend(self) -> None:
        self._ballast.unlink(missing_ok=True)


class ServerAway(Fault):
    name = "MLflow server away"

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._server = start()

    def strike(self, driver: Driver, random: Random) -> tuple[str, float] | None:
        self.stop()
        return "", random.uniform(2, 30)

    def mend(self) -> None:
        self._server = self._start()

    def stop(self) -> None:
        with contextlib.suppress(psutil.Error):
            kill_all(psutil.Process(self._server.pid).children(recursive=True))
        self._server.kill()
        self._server.wait()


def fill(ballast: Path) -> None:
    """Until the last byte of its file system is taken."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
