"""What the program runs on: looks at the Ray cluster and decides how many workers, threads and GPUs to use.

Nothing here changes a result's key. Ray is started only by `connect`, never at import.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bownet.config import Settings
from pipelines.priority import before_watchers


class Resources(Settings):
    """How much of the cluster to use. Never part of a result's key."""

    workers: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Training workers. None: one per GPU, or one in all without GPUs."""
    min_workers: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Go on with as few when nodes are lost, and with more when they are back. None: wait for all of them."""
    gpu: bool | None = None
    """Train on GPUs. None: where the cluster has some."""
    cpus_per_worker: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPUs, and so threads, of a training worker, all on one node. None: as many as all workers can have."""
    stream: bool | None = None
    """Stream training images from the store instead of keeping them in memory. None: when they do not fit."""
    trainer: Literal["ray_train", "task"] = "ray_train"
    """Ray Train, or for a single worker a plain Ray task, which starts ten seconds sooner."""
    wait_minutes: Annotated[float, Field(ge=0, le=10080)] = 0.0
    """How long to wait for nodes that an autoscaler may bring, or people, if the cluster lacks what is asked for."""
    stall_minutes: Annotated[float, Field(gt=0, le=10080)] = 60.0
    """What shows no sign of life for so long ends with a message. Ample for one shard, or an iteration of k-means."""

    @model_validator(mode="after")
    def _one_worker_in_a_task(self) -> Resources:
        if self.trainer == "task" and (self.workers or 1) != 1:
            raise ValueError(f"trainer=task: has one worker, not workers={self.workers}; use ray_train")
        return self


@dataclass(frozen=True)
class Machine:
    """The part of the cluster that stages may use."""

    workers: int
    cpus_per_worker: int
    gpu: bool
    cpus: int
    stream: bool | None = None
    board: Any = None  # handle of the progress board, an actor
    min_workers: int | None = None  # fewer than `workers`, if training may go on with fewer
    in_task: bool = False  # the one worker is a Ray task, without Ray Train's processes around it
    gpus_per_worker: float = 1.0  # where there are GPUs; several tasks may share one
    stall_seconds: float = 3600.0  # what shows no sign of life for so long is given up

    def describe(self) -> str:
        device = f"{self.workers} GPU" if self.gpu else f"{self.cpus_per_worker} CPU"
        return f"{self.workers} training worker{'s' * (self.workers > 1)} ({device} each), {self.cpus} CPUs for data"


# glibc gives every large tensor back to the kernel when it is freed, and the next step pays for its pages again. Kept
# instead: 1.35 times the images per second of a small network on two cores. Ray Train trains in a thread of its own,
# whose arena could not hold such tensors: all threads share the main one.
KEEP_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
# Threads that wait for each other spin for long by default, which halves the speed as soon as something else runs on
# the machine. Short spinning keeps the speed of an idle one.
SPIN_SHORTLY = {"GOMP_SPINCOUNT": "2000"}
# The controller of Ray Train takes a step this often; at its default of 2 s a short training starts seconds later, and
# much more often it takes CPU time from the training.
WORKER_VARIABLES = KEEP_MEMORY | SPIN_SHORTLY | {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1"}
WORKER_VARIABLES |= {"RAY_CHDIR_TO_TRIAL_DIR": "0"}  # a trial of a sweep finds data/ where its program was started

# Ray would leave the GPUs of a node visible to workers that have asked for none, and Ray Train would use them.
WORKER_VARIABLES |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}

# A machine that loses its power or network says goodbye to nobody. Ray gives it up after a minute, but calls that it
# was answering wait until gRPC has asked whether it is still there: by default after five minutes, and two more without
# an answer. Not sooner than this: servers that `ray start` has made take a question within a minute of the last one for
# an attack, and close the connection. A local Ray is left with the default: it has no other machine, and may be stopped
# as a whole for a while.
NOTICE_LOST_MACHINES = {
    "RAY_grpc_client_keepalive_time_ms": "90000",
    "RAY_grpc_client_keepalive_timeout_ms": "30000",
}

# A local Ray has no dashboard, so that nobody reads what its processes would measure of each other; and the watcher of
# preemption looks for a notice that only clouds give. All of it takes time from a training on the same cores.
QUIET_LOCAL_RAY = {
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
}


def set_variables(is_local: bool) -> dict[str, str]:
    """What Ray shall find when it starts, unless people have set it themselves; returns what is for its workers."""
    for_workers = WORKER_VARIABLES if is_local else WORKER_VARIABLES | NOTICE_LOST_MACHINES
    for name, value in for_workers.items():
        os.environ.setdefault(name, value)
    # A local Ray would end idle worker processes after a second; each new one spends seconds on importing torch. And it
    # would keep as many as there are CPUs for ever, which costs a training some of its time.
    os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "30000")
    os.environ.setdefault("RAY_num_workers_soft_limit", "0")
    os.environ.setdefault("RAY_worker_maximum_startup_concurrency", "16")
    # Ray would give its workers the lowest priority but four: on a machine of our own that costs a tenth of the speed.
    os.environ.setdefault("RAY_worker_niceness", "0")
    if is_local:
        for name, value in QUIET_LOCAL_RAY.items():
            os.environ.setdefault(name, value)
    # A thread that outlives its cluster would start a second one with its next call.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    # What a job was submitted with has gone before ours; Ray would end, and show every variable that the job carries.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    return {name: os.environ[name] for name in for_workers}


def connect(object_store_memory: int | None = None, cpus: int | None = None) -> None:
    """Join the cluster that RAY_ADDRESS names, as it does within a job, or start a local one.

    Ray by itself would also join the cluster last started on this machine, and wait for minutes if that has died.
    """
    is_local = not os.environ.get("RAY_ADDRESS")
    for_workers = set_variables(is_local)
    import ray
    import ray.data

    # Authentication stays as Ray has it, on; the notice about that would be the first line of every run.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    with on_loopback() if is_local else nullcontext():
        ray.init(
            address="local" if is_local else None,
            logging_level=logging.WARNING,
            log_to_driver=False,
            include_dashboard=False,
            object_store_memory=object_store_memory,
            num_cpus=cpus,
            runtime_env={"env_vars": for_workers},
        )
    before_watchers()
    tame_ray_data()


@contextmanager
def on_loopback() -> Iterator[None]:
    """A Ray that starts in here is reached from this machine only, as it is by default on macOS and Windows.

    Elsewhere its processes would listen on every address; Ray takes 127.0.0.1 for that of the network, also when such a
    Ray is joined. The constant is not part of its interface: where it has gone, the token alone keeps others out.
    """
    from ray._private import ray_constants

    with_others = getattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = with_others


def tame_ray_data() -> None:
    """Quick and silent, in this process: our own display tells what goes on, and its errors are raised as well."""
    import ray.data

    _wake_ray_data_often()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name, level in (("ray.data", logging.CRITICAL), ("ray.train", logging.ERROR)):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setLevel(level)


def _wake_ray_data_often() -> None:
    """Ray Data learns of the CPUs there are after a second, and of a finished task after 0.1 or 0.2 s.

    For passes of a few seconds that is half of the time. These constants are not part of its interface: where they
    have gone, it is as slow as it is by itself.
    """
    from ray.data._internal.execution import resource_manager, streaming_executor_state

    for owner, name, seconds in (
        (resource_manager.ResourceManager, "GLOBAL_LIMITS_UPDATE_INTERVAL_S", 0.05),
        (streaming_executor_state, "WAIT_FOR_TASK_COMPLETION_TIMEOUT_S", 0.05),
    ):
        if hasattr(owner, name):
            setattr(owner, name, seconds)


def survey(resources: Resources, board: Any = None) -> Machine:
    """Fit the wishes to the cluster; refuse in one line what it does not have."""
    import ray

    nodes = [Node.of(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    if resources.gpu and not gpus:
        raise ValueError("resources.gpu=True: the cluster has no GPUs; add a node that has some")
    if resources.gpu is False:
        gpus = 0
    in_task = resources.trainer == "task"
    workers = resources.workers or (1 if in_task else max(1, gpus))
    if gpus and workers > gpus:
        raise ValueError(f"resources.workers={workers}: the cluster has {gpus} GPUs, use 1..{gpus}")
    fewest = resources.min_workers
    if fewest is not None and fewest > workers:
        raise ValueError(f"resources.min_workers={fewest}: there are {workers} training workers, use 1..{workers}")
    threads = resources.cpus_per_worker or most_threads(nodes, workers, gpus > 0)
    if room_for(nodes, threads, gpus > 0) < workers:
        there = " + ".join(str(node.cpus) for node in nodes if node.cpus)
        raise ValueError(
            f"resources.workers={workers} x cpus_per_worker={threads}: the cluster has {there} CPUs on its nodes, and "
            "a worker must find all of its own on one; ask for fewer"
        )
    return Machine(
        workers,
        threads,
        gpus > 0,
        max(1, cpus),
        resources.stream,
        board,
        fewest,
        in_task,
        stall_seconds=resources.stall_minutes * 60,
    )


@dataclass(frozen=True)
class Node:
    """What one machine of the cluster has."""

    cpus: int
    gpus: int

    @staticmethod
    def of(resources: Mapping[str, float]) -> Node:
        return Node(int(resources.get("CPU", 0)), int(resources.get("GPU", 0)))


def room_for(nodes: Sequence[Node], threads: int, gpu: bool) -> int:
    """How many workers of so many CPUs, and a GPU, the nodes can hold; none stretches over two."""
    return sum(min(node.cpus // threads, node.gpus) if gpu else node.cpus // threads for node in nodes)


def most_threads(nodes: Sequence[Node], workers: int, gpu: bool) -> int:
    """The most CPUs that each of the workers can have; 1 where there is no room at all."""
    most = max((node.cpus for node in nodes), default=1)
    return next((n for n in range(most, 1, -1) if room_for(nodes, n, gpu) >= workers), 1)
