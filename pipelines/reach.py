"""Whether every node sees the store: nodes of the cluster are asked as they come, and one that does not is refused.

On a node that lacks the folder of a store, tasks would make it on the node's own disk, where no one finds their files.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from pipelines.store.storage import Folder, is_local

ANSWER_SECONDS = 30.0  # a node that takes longer stands still, and is left to whoever waits for its work
LOOK_SECONDS = 5.0  # a network file system may show a new file late


class Reach:
    """`ask` returns at once; the answers that `require` waits for take as long as a process takes to start."""

    def __init__(self, root: str) -> None:
        self._folder = Folder(root)
        self._asked: set[str] = set()
        self._probes: list[str] = []
        self._waiting: dict[Any, str] = {}  # answers: addresses of their nodes

    def ask(self) -> None:
        """All nodes that have joined since the last time; the driver's own has written what the others look for."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if not is_local(self._folder.root):
            return
        self._asked.add(ray.get_runtime_context().get_node_id())
        alive = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        new = {node: address for node, address in alive.items() if node not in self._asked}
        if not new:
            return
        probe = f"probe-{uuid.uuid4().hex[:12]}"
        self._folder.write_bytes(probe, b"may be deleted\n")
        self._probes.append(probe)
        path = self._folder.path(probe)

        def sees() -> bool:
            until = time.monotonic() + LOOK_SECONDS
            while not os.path.exists(path):
                if time.monotonic() > until:
                    return False
                time.sleep(0.1)
            return True

        task: Any = ray.remote(num_cpus=0)(sees)
        for node, address in new.items():
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            self._waiting[task.options(name="looks for the store", scheduling_strategy=there).remote()] = address
        self._asked |= new.keys()

    def require(self) -> None:
        """Raise ValueError if a node that was asked does not see the store."""
        import ray

        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        ready, _ = ray.wait([*waiting], num_returns=len(waiting), timeout=ANSWER_SECONDS)
        blind = []
        for answer in ready:
            try:
                if not ray.get(answer):
                    blind.append(waiting[answer])
            except ray.exceptions.RayError:  # it was lost meanwhile
                continue
        while self._probes:
            self._folder.delete(self._probes.pop())
        if blind:
            nodes = f"nodes {', '.join(blind)} do" if len(blind) > 1 else f"node {blind[0]} does"
            raise ValueError(f"store={self._folder.root}: {nodes} not see it; name a folder that all nodes mount")
