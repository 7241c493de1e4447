"""Many independent units of work that share large arrays: spread over the cluster as Ray tasks of one CPU each.

The arrays are put into the object store once, where the tasks of a machine read the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.machine import Machine
from pipelines.stages.watch import run_watched

PARTS_PER_CPU = 16  # at the end a CPU waits for less than the 16th part of what it had to do; each costs some ms


def fan_out(machine: Machine, label: str, what: str) -> Callable[..., list[Any]]:
    """A `run` for evaluators: `label` and `what` tell people whose work it is, and of which kind its units are."""

    def run(function: Callable[[Any, Sequence[Any]], list[Any]], shared: Any, units: Sequence[Any]) -> list[Any]:
        import ray

        count = min(len(units), PARTS_PER_CPU * machine.cpus)
        # Every n-th unit: where they come in order of their cost, each task gets a mixture.
        parts = [units[i::count] for i in range(count)]
        results: list[Any] = [None] * len(units)
        held = ray.put(shared)
        task = ray.remote(num_cpus=1)(function)
        waiting = {task.remote(held, part): i for i, part in enumerate(parts)}
        done = 0

        def collect() -> None:
            nonlocal done
            while waiting:
                (ready, *_), _ = ray.wait([*waiting])
                i = waiting.pop(ready)
                results[i::count] = ray.get(ready)
                done += len(parts[i])
                if machine.board is not None:
                    record = {"kind": "unit", "label": label, "key": "", "what": what, "epoch": done}
                    machine.board.post.remote({**record, "epochs": len(units)})

        run_watched(collect, lambda: done, label, machine.stall_seconds)
        return results

    return run
