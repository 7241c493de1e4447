"""What a finished run leaves in the store for reports: its settings, rows and run id go in, and come out again.

results/<run id>.json, one for each run that came to its end; MLflow shows the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipelines.store import Folder, StoreError

FOLDER = "results"


@dataclass(frozen=True)
class Record:
    """A run that came to its end. `rows` are as the JSON of full.py has them."""

    run: str  # its id in MLflow, or local-... where MLflow did not answer
    settings: Mapping[str, Any]
    rows: list[dict[str, Any]]
    seconds: float
    mlflow: Mapping[str, Any] = field(default_factory=dict)  # tracking_uri, experiment_id
    sweep: Mapping[str, Any] = field(default_factory=dict)  # name, run and label of the trial; empty outside of sweeps
    stages: list[dict[str, Any]] = field(default_factory=list)  # what was built and what was cached, with seconds
    finished: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def seed(self) -> int:
        return int(self.settings["seed"])

    @property
    def scale(self) -> str:
        return str(self.settings.get("scale", "full"))

    def metrics(self, model: str) -> dict[str, float]:
        """Scores of a model; empty if the run has no such row."""
        return next((row["metrics"] for row in self.rows if row["name"] == model), {})


def origin(record: Record) -> str:
    """A line below figures and pictures of a run: `demo, small scale, seed 0, run 3f2a9c10`."""
    name = record.settings.get("name", "evaluation")
    return f"{name}, {record.scale} scale, seed {record.seed}, run {record.run[:8]}"


def write_record(root: str, record: Record) -> None:
    Folder(root, FOLDER).write_json(f"{record.run}.json", asdict(record))


def read_records(root: str) -> list[Record]:
    """All of them, the oldest first. One that cannot be read is an error that names it."""
    folder = Folder(root, FOLDER)
    records = []
    for name in folder.files():
        try:
            records.append(Record(**folder.read_json(name)))
        except (TypeError, ValueError) as error:
            raise StoreError(f"{folder.path(name)}: is no record of a run ({error}); remove it") from error
    return sorted(records, key=lambda record: (record.finished, record.run))
