"""Trials with Ray Tune: points, or axes for a search algorithm, go in; what failed and what ended early come out."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from rich.console import Console

from bownet.masking import without_password
from pipelines.ending import root_cause
from pipelines.machine import Node
from pipelines.sweeps.options import SweepOptions
from pipelines.sweeps.space import Axis, Point
from pipelines.sweeps.trial import WHOLE, Job, run_trial


def share(options: SweepOptions) -> tuple[int, float, int]:
    """CPUs and GPUs of a trial, and how many trials the cluster has room for."""
    import ray

    nodes = [Node.of(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    cpus, gpus = max((node.cpus for node in nodes), default=1), sum(node.gpus for node in nodes)
    wanted = options.gpus_per_trial if options.gpus_per_trial is not None else (1.0 if gpus else 0.0)
    if options.cpus_per_trial > cpus:
        raise ValueError(f"cpus_per_trial={options.cpus_per_trial}: a node has {cpus} CPUs, use 1..{cpus}")
    if wanted and not gpus:
        raise ValueError(f"gpus_per_trial={wanted:g}: the cluster has no GPU, use 0")
    return options.cpus_per_trial, wanted, max(1, room_of(nodes, options.cpus_per_trial, wanted))


def room_of(nodes: Sequence[Node], cpus: int, gpus: float) -> int:
    """How many trials find their CPUs and GPUs at the same time, each on one node, a share of a GPU on one GPU."""
    on_a_gpu = int(1 / gpus + 1e-9) if gpus else 0  # 1 / 0.1 may be a little less than 10
    return sum(min(node.cpus // cpus, node.gpus * on_a_gpu if gpus else node.cpus) for node in nodes)


def tune_trials(
    job: Job,
    tried: Sequence[tuple[Point, int]],
    axes: Sequence[Axis],
    options: SweepOptions,
    most: int,
    console: Console | None,
) -> tuple[list[str], list[str]]:
    """Run them all; a line for each that failed and for each that was ended early. A failed one ends no other."""
    quiet = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0", "TUNE_WARN_THRESHOLD_S": "60"}
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")  # the proxy comes before the score
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C ends this program as it ends the others
    from ray import tune

    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # `telling` tells of errors, in a line each

    from pipelines.sweeps.telling import Telling, name_of

    if tried:
        given = [{"label": p.label, "settings": dict(p.settings), "seed": seed} for p, seed in tried]
        space: dict[str, Any] = {"point": tune.grid_search(given)}
    else:
        space = {axis.name: domain(axis) for axis in axes}
    config = tune.TuneConfig(
        num_samples=1 if tried else options.samples,
        max_concurrent_trials=most,
        trial_dirname_creator=lambda trial: trial.trial_id,
        search_alg=None if tried else optuna(job),
        scheduler=asha() if options.scheduler == "asha" else None,
    )
    trainable = tune.with_resources(tune.with_parameters(run_trial, job=job), next_to_nothing())
    telling = Telling(console, len(tried) or options.samples)
    where = tune.RunConfig(name=f"{job.run}", storage_path=f"{job.root}/tune", verbose=0, callbacks=[telling])
    results = tune.Tuner(trainable, param_space=space, tune_config=config, run_config=where).fit()
    ended = [results[i] for i in range(len(results))]
    failed = [f"{name_of(one.config or {})}: failed: {_reason(one.error)}" for one in ended if one.error is not None]
    return failed, telling.early


def domain(axis: Axis) -> Any:
    """An axis as Ray Tune has it, whose whole numbers end before the upper one."""
    from ray import tune

    if not axis.is_range:
        return tune.choice(list(axis.values))
    if axis.whole:
        return (tune.lograndint if axis.log else tune.randint)(int(axis.low), int(axis.high) + 1)
    return (tune.loguniform if axis.log else tune.uniform)(axis.low, axis.high)


def next_to_nothing() -> Any:
    """What a trial asks for, which only waits. Tune wants it to be something.

    Even a hundredth of a CPU would leave a node with one less for tasks, each of which needs a whole one.
    """
    from ray import tune

    return tune.PlacementGroupFactory([{"memory": 1 << 20}])


def _reason(error: Exception) -> str:
    lines = str(root_cause(error)).strip().splitlines()
    return without_password(lines[-1]) if lines else type(error).__name__


def check_optuna() -> None:
    if find_spec("optuna") is None:
        raise ValueError("search=optuna: it is not installed; pip install optuna, or use random")


def optuna(job: Job) -> Any:
    from ray.tune.search.optuna import OptunaSearch

    class OfScores(OptunaSearch):
        """The proxy, which ASHA looks at, comes before the score, and is none; what ASHA ends never has one."""

        def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
            if self.metric in result:
                super().on_trial_result(trial_id, result)

    return OfScores(metric="score", mode="max", seed=int(job.settings["seed"]))


def asha() -> Any:
    """Looks after a ninth and a third of a trial's own epochs; the last rung, its end, is for scores and not for it."""
    from ray.tune.schedulers import ASHAScheduler

    return ASHAScheduler(
        time_attr="progress", metric="proxy", mode="max", max_t=WHOLE + 1, grace_period=WHOLE // 9, reduction_factor=3
    )
