"""MLflow: one parent run per experiment with settings and final metrics, one child run per model with its curves.

The only module that imports mlflow. Everything logged here is also in the store; a tracking server that is down costs
a warning, never a result, and gets what it has missed when it is back, but for the load of the machine.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Metric, Param
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from bownet.masking import without_password
from pipelines.outbox import Outbox
from pipelines.paper.matching import presets_of
from pipelines.paper.tables import rows_made_by
from pipelines.progress import Record
from pipelines.stages.images import Images
from pipelines.stages.model_stage import ModelStage
from pipelines.store import Artifact, Folder, Observer, Stage
from pipelines.store.artifacts import commit

log = logging.getLogger("pipelines.tracking")

LAST_WAIT = 5.0  # seconds, at the end of a run
LOCK_SECONDS = 120.0  # ample for another program to make the tables of a new sqlite file
REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "RESOURCE_DOES_NOT_EXIST",
    "RESOURCE_ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "NOT_IMPLEMENTED",
}
DESCRIPTION = "mlflow.note.content"  # where MLflow's pages look for it
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # else its pages ask, or show views for LLMs
_NOT_METRICS = ("kind", "label", "key", "epoch", "epochs", "time", "done")


def tracking_uri(store_root: str) -> str:
    """MLFLOW_TRACKING_URI if set, else a sqlite file inside the store."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return uri
    root = Folder(store_root)
    if not root.is_local:
        raise ValueError(f"store={store_root}: sqlite cannot live there, set MLFLOW_TRACKING_URI to an MLflow server")
    return f"sqlite:///{Path(root.path('mlflow.db')).resolve()}"


def artifact_location(uri: str) -> str | None:
    """Where pictures go: beside a sqlite file, as MLflow would take the current folder; a server decides itself."""
    if not uri.startswith("sqlite:///"):
        return None
    return (Path(uri.removeprefix("sqlite:///")).absolute().parent / "mlflow-artifacts").as_uri()


def how_to_look(uri: str) -> str:
    """What to open in a browser, and the command that starts MLflow's pages where no server runs."""
    if uri.startswith(("http://", "https://")):
        return f"in a browser, at {without_password(uri)}"
    command = f"{Path(sys.executable).parent / 'mlflow'} ui --backend-store-uri {without_password(uri)}"
    return f"in a browser, at http://127.0.0.1:5000, with:\n{command} --host 127.0.0.1 --port 5000"


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings by their dotted names, as on the command line."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(value)
    return flat


class Tracking(Observer):
    """Logs an experiment as it happens."""

    def __init__(
        self,
        uri: str,
        experiment: str,
        settings: Mapping[str, Any],
        plan: Mapping[str, str],
        name: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`name` is the run's, if not the experiment's; `parent` the run of the sweep that it is a trial of."""
        self.uri, self._name = uri, experiment
        self.run_id: str | None = None
        self.experiment_id: str | None = None
        # A run that could not begin is begun later, whatever the reason was; nothing else can be logged before it.
        self._outbox = Outbox(without_password(uri), lambda error: self.run_id is not None and _is_refusal(error))
        self._children: dict[str, str] = {}  # model name -> run id
        self._images: list[Mapping[str, Any]] = []  # what stages of images have told
        self._live: dict[str, set[int]] = {}  # stage key -> epochs already logged
        self._building = ("", "", "")  # key, model and curves of the stage that is being built
        self._monitor: SystemMetricsMonitor | None = None
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")  # not 120 s, which a training would wait for
        # At the end of a run MLflow would print its address as it is, with a password, and under --quiet, too
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        for noisy in ("mlflow", "alembic", "urllib3"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)  # errors are raised as well, and told by us
        try:
            with _one_at_a_time(uri):
                self._client = mlflow.MlflowClient(tracking_uri=uri)
        except Exception as error:
            said = str(error).splitlines()[0].replace(uri, without_password(uri))
            raise ValueError(f"MLFLOW_TRACKING_URI={without_password(uri)}: {said}") from error
        self._tags = _provenance() | dict(tags or {})
        self._tags |= {"scale": str(settings["scale"])} if "scale" in settings else {}
        # The sweep's own run has no scores of one setting; each of its trials is what its settings are.
        self._presets = presets_of(settings) if "sweep" not in settings else ()

        def begin() -> None:
            self.experiment_id = self._experiment = self._find_or_create(experiment)
            of_run = self._tags | {f"stage.{label}": key for label, key in plan.items()}
            of_run |= {"mlflow.parentRunId": parent} if parent else {}
            of_run |= _paper_rows(self._presets) | {DESCRIPTION: describe(experiment, settings)}
            run = self._client.create_run(self._experiment, run_name=name or experiment, tags=of_run)
            self.run_id = run.info.run_id

        # A path may be an address with a password in it
        parameters = [Param(name, without_password(value)[:6000]) for name, value in flatten(settings).items()]
        self._outbox.put(begin)
        self._outbox.put(lambda: self._client.log_batch(self._run_of(None), params=parameters))

    def _find_or_create(self, experiment: str) -> str:
        if found := self._client.get_experiment_by_name(experiment):
            return found.experiment_id
        try:
            return self._client.create_experiment(experiment, artifact_location(self.uri), EXPERIMENT_TAGS)
        except mlflow.exceptions.MlflowException:  # another run has just created it
            if found := self._client.get_experiment_by_name(experiment):
                return found.experiment_id
            raise

    def on_start(self, stage: Stage, artifact: Artifact) -> None:
        if not isinstance(stage, ModelStage):
            return
        self._building = (artifact.key, stage.model, stage.curves or "")
        model = stage.model
        self._outbox.put(lambda: self._run_of(model))
        if self._outbox.is_empty and stage.curves:
            self._monitor = SystemMetricsMonitor(self._run_of(model), sampling_interval=5, tracking_uri=self.uri)
            self._outbox.put(self._monitor.start)

    def listen(self, record: Record) -> None:
        """Log an epoch as soon as a worker posts it."""
        key, model, curves = self._building
        if curves and record["key"] == key and record["kind"] == "epoch":
            self._log_history(model, key, curves, [record])

    def on_done(self, stage: Stage, artifact: Artifact, cached: bool, seconds: float) -> None:
        if self._monitor:
            self._outbox.put(self._monitor.finish)
            self._monitor = None
        info = artifact.info
        if isinstance(stage, Images):
            self._images.append(info)
        if not isinstance(stage, ModelStage):
            return
        model = stage.model
        batch: dict[str, float] = {}
        if stage.name == "vocabulary":
            batch = {f"vocabulary/{k}": info[k] for k in ("perplexity", "vectors", "splits")}
            self._log_batch(model, [Metric("vocabulary/inertia", v, 0, i) for i, v in enumerate(info["inertia"])])
        elif stage.name == "words":
            batch = {f"words/{k}": value for k, value in info["health"].items()}
        elif stage.curves:
            self._log_history(stage.model, artifact.key, stage.curves, artifact.read_json("history.json"))
        self._log_metrics(model, batch)
        for figure in info.get("figures", ()):  # pictures that a stage wants people to see
            path = str(artifact.local_path(figure))
            self._outbox.put(partial(self._log_picture, model, path, stage.name))
        self._outbox.put(lambda: self._client.set_tag(self._run_of(model), f"stage.{stage.name}", artifact.ref))

    def _log_images(self) -> None:
        """After all scores: MLflow's page that compares runs begins with the metric that was logged first."""
        for info in self._images:
            self._log_metrics(None, image_metrics(info))
            for split, counts in info["class_counts"].items():  # a histogram: the step is the number of the class
                metrics = [Metric(f"images/{split}_class_count", n, 0, c) for c, n in enumerate(counts)]
                for start in range(0, len(metrics), 500):
                    self._log_batch(None, metrics[start : start + 500])

    def finish(self, rows: list[dict[str, Any]]) -> None:
        """Scores: each model's on its child run, the last model's and all models' on the parent."""
        for row in rows:
            self._log_metrics(row["name"], row["metrics"])
        if rows:
            everything = {f"{_slug(row['name'])}/{k}": v for row in rows for k, v in row["metrics"].items()}
            self._log_metrics(None, rows[-1]["metrics"] | everything)
        self._end("FINISHED")

    def log_file(self, path: Path) -> None:
        """A picture or a table, with the run; now, unless the server is away: it may be gone when that is back."""
        self._outbox.put(lambda: self._client.log_artifact(self._run_of(None), str(path)))

    def end_left_over(self) -> None:
        """Runs of the same sweep with the same seeds, whose program was killed, run no longer."""
        same = {name: self._tags[name] for name in ("sweep.base", "sweep", "sweep.seeds")}
        self._end_running(lambda run_id, tags: run_id != self.run_id and same.items() <= tags.items())

    def end_trials(self) -> None:
        """Of this sweep: those that were ended early, and their models, run no longer."""
        self._end_running(lambda _, tags: tags.get("sweep.run") == self.run_id)

    def _end_running(self, is_over: Callable[[str, Mapping[str, str]], bool]) -> None:
        base = self._tags["sweep.base"]

        def end() -> None:
            wanted = f"attributes.status = 'RUNNING' AND tags.`sweep.base` = '{base}'"
            for run in self._client.search_runs([self._experiment], wanted, max_results=5000):
                if is_over(run.info.run_id, run.data.tags):
                    self._client.set_terminated(run.info.run_id, "KILLED")

        self._outbox.put(end)

    def fail(self) -> None:
        self._end("FAILED")

    def _end(self, status: str) -> None:
        """A server that was there and is away now is waited for a while: it may be back in some seconds."""
        self._log_images()

        def end() -> None:
            for run in [*self._children.values(), self._run_of(None)]:
                self._client.set_terminated(run, status)

        self._outbox.put(end)
        if not self._outbox.flush(LAST_WAIT if self.run_id else 0):
            log.warning(
                "MLflow at %s has not got all of this run; the same command logs it anew, from the store",
                without_password(self.uri),
            )

    def _run_of(self, model: str | None) -> str:
        """The run of a model, made when it is first asked for; of the whole experiment for None."""
        assert self.run_id is not None, "calls are made in order, and the first one begins the run"
        if model is None:
            return self.run_id
        if model not in self._children:
            tags = self._tags | {"mlflow.parentRunId": self.run_id, "model": model}
            tags |= _paper_rows(self._presets, model) | {
                DESCRIPTION: f"{model} of {self._name}: its training and scores"
            }
            run = self._client.create_run(self._experiment, run_name=model, tags=tags)
            self._children[model] = run.info.run_id
        return self._children[model]

    def _log_picture(self, model: str, path: str, folder: str) -> None:
        self._client.log_artifact(self._run_of(model), path, folder)

    def _log_history(self, model: str, key: str, curves: str, history: list[Record]) -> None:
        """Each epoch once, whether it came live from a worker or from the finished artifact."""
        seen = self._live.setdefault(key, set())
        metrics = [
            Metric(f"{curves}/{name}", value, int(record["time"] * 1000), int(record["epoch"]))
            for record in history
            if int(record["epoch"]) not in seen
            for name, value in record.items()
            if name not in _NOT_METRICS
        ]
        seen.update(int(record["epoch"]) for record in history)
        for start in range(0, len(metrics), 500):
            self._log_batch(model, metrics[start : start + 500])

    def _log_metrics(self, model: str | None, metrics: Mapping[str, float]) -> None:
        self._log_batch(model, [Metric(name, value, int(time.time() * 1000), 0) for name, value in metrics.items()])

    def _log_batch(self, model: str | None, metrics: list[Metric]) -> None:
        if metrics:
            self._outbox.put(lambda: self._client.log_batch(self._run_of(model), metrics=metrics))


@contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """MLflow makes the tables of a new sqlite file in steps, and two programs that do so at once get into trouble."""
    if not uri.startswith("sqlite:///"):
        yield
        return
    path, deadline = Path(uri.removeprefix("sqlite:///") + ".lock"), time.monotonic() + LOCK_SECONDS
    with path.open("w") as file:
        while True:  # asked, not waited for: another program may have been stopped while it has the lock
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ValueError(
                        f"{path}: another program has held it for {LOCK_SECONDS:.0f} s; look which one (fuser), end it "
                        "if it stands still, and run again"
                    ) from None
                time.sleep(0.1)
        yield


def _is_refusal(error: Exception) -> bool:
    """Whether a server has looked at the call and will say the same the next time; a lost one says INTERNAL_ERROR."""
    if isinstance(error, FileNotFoundError):  # a picture that has gone while it was away
        return True
    return isinstance(error, mlflow.exceptions.MlflowException) and error.error_code in REFUSALS


def image_metrics(info: Mapping[str, Any]) -> dict[str, float]:
    """Statistics of an images artifact: counts, bad images, sizes, channel means and deviations."""
    metrics: dict[str, float] = {f"images/{split}": count for split, count in info["counts"].items()}
    metrics["images/bad"] = len(info["bad"])
    for which, (height, width) in info["height_width"].items():
        metrics |= {f"images/height_{which}": height, f"images/width_{which}": width}
    for name in ("mean", "std"):
        metrics |= {f"images/{name}_{c}": value for c, value in zip("rgb", info[name], strict=True)}
    return metrics


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-").replace("×", "x")


def describe(experiment: str, settings: Mapping[str, Any]) -> str:
    """What people read at the top of a run, in Markdown; a reduced scale is not to be taken for the paper's."""
    flat = flatten(settings)
    about = {
        "teacher": "teacher.kind",
        "network": "student.arch",
        "words": "vocabulary.size",
        "rounds": "rounds",
        "images": "data.kind",
        "weights": "weights",
        "evaluators": "evaluators",
        "seed": "seed",
    }
    said = ", ".join(f"{word}: {_in_words(flat[name])}" for word, name in about.items() if name in flat)
    reduced = f" **Reduced scale ({flat['scale']}): not comparable with the paper.**" if _is_reduced(flat) else ""
    return f"`{experiment}` {said}.{reduced}"


def _in_words(value: str) -> str:
    """Lists without the brackets and quotes of Python."""
    shown = without_password(value)
    return shown[1:-1].replace("'", "").replace(", ", " + ") if re.fullmatch(r"\[.*\]|\(.*\)", shown) else shown


def _is_reduced(flat: Mapping[str, str]) -> bool:
    return flat.get("scale", "full") != "full"


def _paper_rows(presets: Sequence[str], model: str | None = None) -> dict[str, str]:
    """The rows of the paper's tables that this is, where it is one: with the settings of these presets."""
    rows = dict.fromkeys(row for preset in presets for row in rows_made_by(preset, model))
    return {"paper.rows": "; ".join(rows)} if rows else {}


def _provenance() -> dict[str, str]:
    """Versions, the program and the commit of this code; MLflow shows its own tags in columns, and all others below."""
    tags = {f"version.{name}": importlib.metadata.version(name) for name in ("torch", "ray", "mlflow")}
    tags["version.python"] = sys.version.split()[0]
    tags |= {"mlflow.source.name": Path(sys.argv[0]).name, "mlflow.source.type": "LOCAL"}
    if (here := commit()) is not None:
        tags |= {"mlflow.source.git.commit": here, "git.commit": here}
    return tags
