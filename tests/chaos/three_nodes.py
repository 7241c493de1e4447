"""A real Ray cluster of three nodes on this machine: a head without CPUs, and two that work and can be lost."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.pipelines.killing import kill_all

MB = 1 << 20
OURS = ("ray::RayTrainWorker", "ray::Map", "ray::Worker", "ray::artifacts/")  # that do a stage's work


class ThreeNodes:
    """Use it as a context manager. Each node has its CPUs, a raylet and an object store of its own."""

    def __init__(self, cpus: int = 2, object_store_mb: int = 150) -> None:
        self._each: dict[str, Any] = {"num_cpus": cpus, "object_store_memory": object_store_mb * MB}

    def __enter__(self) -> ThreeNodes:
        from ray.cluster_utils import Cluster

        os.environ.setdefault("RAY_worker_maximum_startup_concurrency", "16")  # as `connect` starts a local Ray
        os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "30000")
        os.environ.setdefault("RAY_worker_niceness", "0")
        head = {**self._each, "num_cpus": 0, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self.others = [self.add() for _ in range(2)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._cluster.shutdown()

    @property
    def head(self) -> Any:
        return self._cluster.head_node

    def add(self) -> Any:
        return self._cluster.add_node(**self._each)

    def lose(self, node: Any) -> None:
        """As when a plug is pulled: nothing of it finishes, or says goodbye."""
        workers = processes_of(node)
        for worker in workers:
            worker.suspend()
        self._cluster.remove_node(node, allow_graceful=False)
        kill_all(workers)
        self.others.remove(node)

    def replace(self, node: Any) -> None:
        self.lose(node)
        self.others.append(self.add())

    def have_spilled(self) -> bool:
        """Whether an object store has written to the disk what did not fit into it; raylets say so in their logs."""
        logs = Path(self.head.get_logs_dir_path()).glob("raylet*.out")
        return any("Spilled " in log.read_text(errors="replace") for log in logs)

    def at_work(self, doing: str = "") -> list[tuple[Any, psutil.Process]]:
        """Processes that do a stage's work at this moment, with their nodes; Ray names them by what they do."""
        found = []
        for node in (self.head, *self.others):
            for process in processes_of(node):
                try:
                    title = " ".join(process.cmdline())
                except psutil.Error:
                    continue
                if title.startswith(OURS) and doing in title:
                    found.append((node, process))
        return found


def processes_of(node: Any) -> list[psutil.Process]:
    """The workers that a node's raylet has started."""
    try:
        return raylet_of(node).children(recursive=True)
    except (psutil.Error, KeyError):
        return []


def raylet_of(node: Any) -> psutil.Process:
    """What speaks for a node: while it stands still, nobody hears of the node."""
    return psutil.Process(node.all_processes["raylet"][0].process.pid)
