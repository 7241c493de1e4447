"""Two Ray Tune trials that want the same artifact at the same time build it once."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune

from pipelines.store import Stage, Store, Workspace


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


def test_trials_share_one_build(tmp_path: Path) -> None:
    here = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}  # so that trials can import this module
    ray.shutdown()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=here)
    try:
        space = {"root": str(tmp_path / "store"), "log": str(tmp_path / "log"), "number": tune.grid_search([1, 2])}
        where = tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0)
        results = tune.Tuner(tune.with_resources(trial, {"CPU": 1}), param_space=space, run_config=where).fit()
    finally:
        ray.shutdown()
    assert not results.errors
    metrics = [result.metrics or {} for result in results]
    assert [m["value"] for m in metrics] == [42, 42]
    assert sorted(m["cached"] for m in metrics) == [False, True]
    assert (tmp_path / "log").read_text() == "built\n"
    assert max(m["started"] for m in metrics) < min(m["ended"] for m in metrics)  # they did meet
