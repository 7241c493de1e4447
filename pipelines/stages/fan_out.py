"""Many independent units of work that share large arrays: spread over the cluster as Ray tasks of one CPU each.

The arrays are put into the object store once, where the tasks of a machine read the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.machine import Machine
from pipelines.stages.watch import run_watched

PARTS_PER_CPU = 16  # so that there are signs of life; each costs some ms


def fan_out(machine: Machine, label: str, what: str) -> Callable[..., list[Any]]:
    """A `run` for evaluators: `label` and `what` tell people whose work it is, and of which kind its units are."""

    def run(function: Callable[[Any, Sequence[Any]], list[Any]], shared: Any, units: Sequence[Any]) -> list[Any]:
        import ray

        results: list[Any] = [None] * len(units)
        held = ray.put(shared)
        task = ray.remote(num_cpus=1)(function)
        waiting = {task.remote(held, [units[i] for i in part]): part for part in dealt(len(units), machine.cpus)}
        done = 0

        def collect() -> None:
            nonlocal done
            while waiting:
                (ready, *_), _ = ray.wait([*waiting])
                part = waiting.pop(ready)
                for i, result in zip(part, ray.get(ready), strict=True):
                    results[i] = result
                done += len(part)
                if machine.board is not None:
                    record = {"kind": "unit", "label": label, "key": "", "what": what, "epoch": done}
                    machine.board.post.remote({**record, "epochs": len(units)})

        run_watched(collect, lambda: done, label, machine.stall_seconds)
        return results

    return run


def dealt(count: int, cpus: int) -> list[list[int]]:
    """Numbers of units in parts, each a mixture where units come in order of their cost.

    The last parts become smaller, down to one unit, so that no CPU waits for another's large one at the end.
    """
    most = max(1, count // (PARTS_PER_CPU * cpus))
    stride = min(count, PARTS_PER_CPU * cpus)
    order = [i for first in range(stride) for i in range(first, count, stride)]
    parts = []
    while order:
        size = min(most, -(-len(order) // (2 * cpus)))
        parts.append(order[:size])
        del order[:size]
    return parts
