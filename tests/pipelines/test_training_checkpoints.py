"""Files of checkpoints: what is kept while a run goes on, and from which one it continues. No Ray is needed."""

import math
from pathlib import Path

import mlflow
import pytest
import torch
from torch import Generator, Tensor, nn

from bownet.config import Optimiser
from bownet.training import Hooks, InMemory, how_far, loop, train
from bownet.training.divergence import diverged
from pipelines.stages import training
from pipelines.stages.training import CHECKPOINT, EARLIER, WITHIN, last_checkpoint, save_epoch
from pipelines.store import Folder, Workspace
from pipelines.tracking import Tracking

CONFIG = Optimiser(epochs=2, iterations_per_epoch=3, batch=4, drops=())


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, y: None, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return ((x.float() / 255 - self.w) ** 2).mean(), {"w": self.w.detach().mean()}


def images() -> InMemory:
    return InMemory(torch.arange(8 * 12, dtype=torch.uint8).reshape(8, 2, 2, 3).numpy())


def test_two_of_complete_epochs_and_one_within_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    scratch = Folder(str(tmp_path))
    assert last_checkpoint(scratch) is None
    kept = []

    def look() -> None:
        here = {name: how_far(scratch.read_bytes(name)) for name in scratch.list()}
        furthest = last_checkpoint(scratch)
        assert furthest is not None
        kept.append((here.get(EARLIER), here.get(CHECKPOINT), here.get(WITHIN), how_far(furthest)))

    def save(state: bytes) -> None:
        save_epoch(scratch, state)
        look()

    def save_within(state: bytes) -> None:
        scratch.write_bytes(WITHIN, state)
        look()

    train(Mean(), images(), None, CONFIG, seed=0, hooks=Hooks(save=save, save_within=save_within))
    assert kept == [
        (None, None, (0, 1), (0, 1)),
        (None, None, (0, 2), (0, 2)),
        (None, (1, 0), None, (1, 0)),
        (None, (1, 0), (1, 1), (1, 1)),
        (None, (1, 0), (1, 2), (1, 2)),
        ((1, 0), (2, 0), None, (2, 0)),
    ]


def test_one_that_a_kill_left_behind_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the end of an epoch was written and before the one within it was deleted."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_LOOKS", 0.0)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    scratch, ends, within = Folder(str(tmp_path)), list[bytes](), list[bytes]()
    train(Mean(), images(), None, CONFIG, seed=0, hooks=Hooks(save=ends.append, save_within=within.append))
    scratch.write_bytes(CHECKPOINT, ends[0])
    scratch.write_bytes(WITHIN, within[1])
    assert last_checkpoint(scratch) == ends[0]


def test_a_diverged_run_names_the_file_to_go_back_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Workspace(str(tmp_path), "artifacts/student/key", None)

    def fail(good: int) -> None:
        raise diverged({"loss": math.inf, "gradient_norm": 1.0}, good, "7 of 9", 0.1)

    for good in (0, 4):
        monkeypatch.setattr(training, "_train_on_worker", lambda config, good=good: fail(good))
        said = training._worker({"work": work})
        assert said is not None
        assert f"in epoch {good + 1}, step 7 of 9" in said
        end = f"the last good checkpoint is the end of epoch 4: {tmp_path}/scratch/student/key/checkpoint.pt"
        assert said.endswith(end if good else "there is no good checkpoint before it")


def test_everything_recorded_reaches_mlflow(tmp_path: Path) -> None:
    history = train(Mean(), images(), None, CONFIG, seed=0, hooks=Hooks(look=lambda task, epoch: {"knn": 50.0 + epoch}))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracking = Tracking(uri, "records", {}, {})
    tracking._log_history("model", "key", "train", history)
    tracking.finish([])
    client = mlflow.MlflowClient(uri)
    (experiment,) = client.search_experiments(filter_string="name = 'records'")
    (run,) = [run for run in client.search_runs([experiment.experiment_id]) if run.info.run_name == "model"]
    names = {"loss", "lr", "gradient_norm", "images_per_second", "input_wait", "peak_memory_gb", "workers", "knn", "w"}
    assert run.data.metrics.keys() == {f"train/{name}" for name in names}
    curve = client.get_metric_history(run.info.run_id, "train/knn")
    assert [(point.step, point.value) for point in curve] == [(1, 51.0), (2, 52.0)]
