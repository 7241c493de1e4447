"""Two Ray Tune trials have two CPUs, and an artifact that both want at the same time is built once."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune

from pipelines.store import Stage, Store, Workspace
from pipelines.sweeps.tuning import next_to_nothing


@dataclass(frozen=True)
class Slow(Stage):
    """Leaves a line in a log each time it is built."""

    log: str

    name = "slow"
    version = 1

    def build(self, work: Workspace) -> dict[str, Any]:
        with Path(self.log).open("a") as log:
            log.write("built\n")
        time.sleep(5)  # long enough for the other trial to come and ask
        work.write_json("value.json", 42)
        return {}


def trial(config: dict[str, Any]) -> None:
    store = Store(config["root"])
    started = time.time()
    value = store.get(Slow(config["log"])).read_json("value.json")
    tune.report({"value": value, "cached": store.events[-1].cached, "started": started, "ended": time.time()})


def meet(config: dict[str, Any]) -> None:
    """As a trial does: a task that needs a whole CPU, and that ends when the other trial's is there as well."""

    def wait(folder: str, name: str) -> bool:
        (Path(folder) / name).touch()
        deadline = time.monotonic() + 60
        while len(list(Path(folder).iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        return len(list(Path(folder).iterdir())) == 2

    task = ray.remote(num_cpus=1, scheduling_strategy="DEFAULT")(wait)
    tune.report({"met": ray.get(task.remote(config["at"], str(config["number"])))})


@pytest.fixture(scope="module")
def two_cpus() -> Iterator[None]:
    here = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}  # so that trials can import this module
    ray.shutdown()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=here)
    yield
    ray.shutdown()


def tried(function: Any, folder: Path, resources: Any, **config: str) -> list[dict[str, Any]]:
    """What two trials report."""
    where = tune.RunConfig(storage_path=str(folder / "tune"), verbose=0)
    space = config | {"number": tune.grid_search([1, 2])}
    results = tune.Tuner(tune.with_resources(function, resources), param_space=space, run_config=where).fit()
    assert not results.errors
    return [result.metrics or {} for result in results]


def test_two_trials_have_two_cpus(two_cpus: None, tmp_path: Path) -> None:
    (tmp_path / "meeting").mkdir()
    metrics = tried(meet, tmp_path, next_to_nothing(), at=str(tmp_path / "meeting"))
    assert [m["met"] for m in metrics] == [True, True]


def test_trials_share_one_build(two_cpus: None, tmp_path: Path) -> None:
    metrics = tried(trial, tmp_path, {"CPU": 1}, root=str(tmp_path / "store"), log=str(tmp_path / "log"))
    assert [m["value"] for m in metrics] == [42, 42]
    assert sorted(m["cached"] for m in metrics) == [False, True]
    assert (tmp_path / "log").read_text() == "built\n"
    assert max(m["started"] for m in metrics) < min(m["ended"] for m in metrics)  # they did meet
