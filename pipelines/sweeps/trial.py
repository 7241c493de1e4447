"""One trial: a point and a job go in; its experiment is run on the shared store, tracked and recorded.

The trial itself only waits: its experiment is a Ray task without CPUs, outside of the trial's placement group, and
training and passes over images are tasks of that one, which ask for their own CPUs and GPUs. So a trial that waits for
a stage that another one builds holds nothing that the other one needs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bownet.config import Experiment
from bownet.masking import masked, without_password
from pipelines.full import experiment
from pipelines.machine import Machine, tame_ray_data
from pipelines.paper.matching import OF_NO_MATTER
from pipelines.plan import Plan
from pipelines.progress import Collector, start_board
from pipelines.progress import Record as Posted
from pipelines.records import Record, write_record
from pipelines.stages.student import TrainStudent
from pipelines.stages.teacher import TrainTeacher
from pipelines.store import Store
from pipelines.sweeps.space import changed, label_of

WHOLE = 90  # of a training, as ASHA counts: its ninth and its third are whole numbers


@dataclass(frozen=True)
class Job:
    """What all trials of a sweep share."""

    sweep: str
    run: str  # id of the sweep's own run
    settings: Mapping[str, Any]  # of the experiment that points change
    root: str
    uri: str
    cpus: int  # and threads of a trial
    gpus: float
    metric: str
    proxy: bool = False  # report the proxy of the last student as it learns
    stall_seconds: float = 3600.0  # of resources.stall_minutes
    seeds: str = ""  # of the sweep


def run_trial(config: dict[str, Any], job: Job) -> None:
    """`config` is a point: its label, settings and seed; or, from a search algorithm, settings by name."""
    import ray
    from ray import tune

    point = config.get("point") or {"label": label_of(config), "settings": config, "seed": job.settings["seed"]}
    board = start_board()

    def report(record: Posted) -> None:
        tune.report(progress(record))

    with Collector(board, [report]):
        task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy="DEFAULT")(run_point)
        final = ray.get(task.remote(point, job, board))
    tune.report(final)


def progress(record: Posted) -> dict[str, Any]:
    """What Tune hears of an epoch: `progress` is the part of this trial's own epochs, of which others may have more."""
    epoch, epochs = int(record["epoch"]), int(record["epochs"])
    return {"proxy": record["knn"], "epoch": epoch, "progress": WHOLE * epoch / epochs}


def run_point(point: dict[str, Any], job: Job, trial: Any) -> dict[str, Any]:
    """The experiment of a point, from plan to record; the proxy goes to the board `trial`. Returns what Tune hears."""
    from pipelines.tracking import Tracking

    tame_ray_data()
    exp = changed(Experiment.model_validate(job.settings), {**point["settings"], "seed": point["seed"]})
    started = time.perf_counter()
    store = Store(job.root)
    plan = Plan(store)
    experiment(exp, plan)
    board = start_board()
    gpu = job.gpus > 0
    share = job.gpus if gpu else 1.0
    store.machine = Machine(1, job.cpus, gpu, job.cpus, None, board, None, True, share, job.stall_seconds)
    settings = masked(exp.model_dump(mode="json"))
    keys = {step.stage.label: step.artifact.ref for step in plan.steps}
    name = f"{point['label']}, seed {exp.seed}"
    tags = tags_of(job) | {"sweep.run": job.run, "mlflow.source.name": "sweep.py"}  # this is a Ray worker
    tracking = Tracking(job.uri, exp.name, settings, keys, name, job.run, tags)
    store.observer = tracking
    run = tracking.run_id or f"local-{time.time_ns()}"
    store.record_run(run, keys.values(), {"experiment": exp.name, "sweep": job.sweep})
    label, epochs = last_training(plan)

    def tell(record: Posted) -> None:
        looked = record["kind"] == "epoch" and "knn" in record and record["label"] == label
        if job.proxy and looked and record["epoch"] < record["epochs"]:  # after the last one a trial keeps its score
            trial.post.remote(record)

    try:
        with Collector(board, [tracking.listen, tell]):
            rows = [{**row.result(), "scale": exp.scale} for row in experiment(exp, store)]
    except BaseException:
        tracking.fail()
        raise
    tracking.finish(rows)
    where = {"tracking_uri": without_password(job.uri), "experiment_id": tracking.experiment_id}
    sweep = {"name": job.sweep, "run": job.run, "base": base_of(job), "label": point["label"]}
    sweep |= {"settings": masked(point["settings"])}
    stages = [asdict(event) for event in store.events]
    write_record(job.root, Record(run, settings, rows, time.perf_counter() - started, where, sweep, stages))
    final: dict[str, Any] = {"run": run, "epoch": epochs + 1, "progress": WHOLE + 1}
    return final | ({"score": rows[-1]["metrics"][job.metric]} if job.metric in rows[-1]["metrics"] else {})


def tags_of(job: Job) -> dict[str, str]:
    """What the sweep's own run and all below it have in common, also when the same command goes on with it."""
    return {"sweep": job.sweep, "sweep.base": base_of(job), "sweep.seeds": job.seeds}


def last_training(plan: Plan) -> tuple[str, int]:
    """Label and epochs of the network that is trained last: a student, or the teacher where there is no round."""
    for step in reversed(plan.steps):
        if isinstance(step.stage, TrainStudent):
            return step.stage.label, step.stage.student.optimiser.epochs
        if isinstance(step.stage, TrainTeacher):
            return step.stage.label, step.stage.teacher.optimiser.epochs
    return "", 0


def base_of(job: Job) -> str:
    """The same for sweeps that change the same experiment, whatever its name, seeds and the place of its images.

    What changes no number is left out as in reports: it counts as if it were not set.
    """
    settings = {name: value for name, value in job.settings.items() if name not in ("name", "seed")}
    settings["data"] = {name: value for name, value in settings["data"].items() if name != "path"}
    unset = Experiment().model_dump(mode="json")
    for name in OF_NO_MATTER - {"name", "seed", "scale", "data.path"}:
        *path, leaf = name.split(".")
        here, there = settings, unset
        for part in path:
            here[part] = dict(here[part])
            here, there = here[part], there[part]
        here[leaf] = there[leaf]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
