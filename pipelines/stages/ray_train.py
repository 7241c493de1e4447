"""Runs a function on Ray Train workers, as many as the machine offers, until each of them has come to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import torch

from bownet.training import how_far
from pipelines.ending import root_cause
from pipelines.machine import Machine
from pipelines.priority import before_helpers
from pipelines.progress import posted
from pipelines.stages.one_task import MAX_FAILURES, in_one_task
from pipelines.stages.watch import run_watched
from pipelines.store import Folder, StoreError, Workspace

T = TypeVar("T")


def on_workers(
    loop: Callable[[dict[str, Any]], str | None],
    config: dict[str, Any],
    cpus: float,
    name: str,
    label: str,
    work: Workspace,
) -> None:
    """Run `loop(config)` on workers of so many CPUs each, and a GPU where there are some.

    Lost workers are started again, and find what there is to go on from by themselves. What a loop returns is what the
    user must mend, and is raised here as a ValueError: raised in a worker it would be tried again.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    machine: Machine = work.machine
    if machine.in_task:
        if refusal := _in_task(loop, config, cpus, label, machine):
            raise ValueError(refusal)
        return
    resources: dict[str, float] = {"CPU": cpus} | ({"GPU": 1} if machine.gpu else {})

    def run(config: dict[str, Any]) -> Any:
        before_helpers()
        return loop(config)

    # Ray's annotations know neither ranges
    number: Any = (machine.min_workers, machine.workers) if machine.min_workers else machine.workers
    trainer: Any = TorchTrainer(  # nor what the result holds
        run,
        train_loop_config=config,
        torch_config=_alone() if number == 1 else TorchConfig(),
        scaling_config=ScalingConfig(num_workers=number, use_gpu=machine.gpu, resources_per_worker=resources),
        run_config=RunConfig(
            name=f"{name}-{time.time_ns()}",
            storage_path=work.scratch.path("ray_train"),
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
        ),
    )
    if refusal := _fit(trainer, machine, label).return_value:
        raise ValueError(refusal)


def save_if_possible(scratch: Folder, name: str, state: bytes) -> None:
    """A checkpoint at a moment that one worker chooses: were it to raise, the others would wait for it for ever.

    One that cannot be written costs nothing yet; what must be written, at the end, may find more room.
    """
    with suppress(StoreError):
        scratch.write_bytes(name, state)


def refusal(error: ValueError) -> str:
    """Its line. What a task has raised comes out of Ray with the task's traceback as its text."""
    return str(root_cause(error))


def agreed(make: Callable[[], T], world: int) -> T:
    """What each worker makes for itself. What one of them refuses all refuse: they would wait for it in vain."""
    made: list[T] = []
    said: str | None = None
    try:
        made.append(make())
    except ValueError as error:
        said = refusal(error)
    of_all: list[str | None] = [said] * world
    if world > 1:
        torch.distributed.all_gather_object(of_all, said)
    for line in of_all:
        if line is not None:
            raise ValueError(line)
    return made[0]


def furthest_checkpoint(scratch: Folder, *names: str) -> bytes | None:
    """Of the files that are there; one that cannot be read is refused, for to try again would only repeat it."""
    found: list[tuple[tuple[int, int], bytes]] = []
    for name in names:
        if not scratch.exists(name):
            continue
        content = scratch.read_bytes(name)
        try:
            found.append((how_far(content), content))
        except Exception as error:  # of whatever kind: torch and pickle have many for a file that is not theirs
            reason = next(iter(str(error).splitlines()), "")
            raise ValueError(f"{scratch.path(name)}: cannot be read ({reason}); delete it and run again") from error
    return max(found, key=lambda one: one[0])[1] if found else None


def _alone() -> Any:
    """One worker has nobody to talk to: without a process group it starts sooner, and has no threads that wait."""
    from ray.train.backend import Backend
    from ray.train.torch import TorchConfig

    class Alone(TorchConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Backend

    return Alone()


def _in_task(
    loop: Callable[[dict[str, Any]], str | None], config: dict[str, Any], cpus: float, label: str, machine: Machine
) -> str | None:
    """The one worker as a Ray task: Ray Train's local mode gives the loop its surroundings, and no process more."""

    def run(config: dict[str, Any]) -> str | None:
        from ray.train import ScalingConfig
        from ray.train.torch import TorchTrainer

        local = ScalingConfig(num_workers=0, use_gpu=machine.gpu)
        trainer: Any = TorchTrainer(loop, train_loop_config=config, scaling_config=local)  # type: ignore[arg-type]
        return trainer.fit().return_value

    return in_one_task(run, (config,), machine, label, cpus, machine.gpus_per_worker if machine.gpu else 0)


def _fit(trainer: Any, machine: Machine, what: str) -> Any:
    """`trainer.fit()` in a thread: in the main one Ray Train takes Ctrl-C for itself and ends without a word.

    For workers that a cluster does not have it would wait for ever. Training posts what it does every second or so.
    """
    result: list[Any] = []
    life = time.monotonic if machine.board is None else partial(posted, machine.board)
    run_watched(lambda: result.append(trainer.fit()), life, what, machine.stall_seconds)
    return result[0]
