"""A store that not every node sees is refused before anything is built: real nodes, one with a disk of its own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from killing import kill_all, wait_for
from ray_start import RAY

from pipelines.cluster import Cluster
from pipelines.command_line import parse
from pipelines.machine import Resources
from pipelines.plan import Plan
from pipelines.program import preflight
from pipelines.reach import Reach
from pipelines.stages import shards
from pipelines.stages.shards import require_files
from pipelines.store import Folder, Stage, Store, StoreError, Workspace
from tests.chaos.small_disk import leave_out

pytestmark = pytest.mark.faults


class Nothing(Stage):
    name = "nothing"
    version = 1

    def build(self, work: Workspace) -> dict[str, Any]:
        return {}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def blind(nodes: Any, store: Path) -> Iterator[str]:
    """A node of the cluster, in whose file system another disk lies over the store."""
    if sys.platform != "linux" or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        leave_out("a process cannot have mounts of its own here; unshare of util-linux, as root")
    start = f"{RAY} start --address={nodes.address} --num-cpus=1 --dashboard-agent-listen-port=0 --block"
    hidden = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {store} && exec {start}"]
    process = subprocess.Popen(hidden, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    import ray

    def joined() -> list[str]:
        assert process.poll() is None, "the node has ended"
        return [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]][1:]

    yield wait_for(joined, 120)[0]
    kill_all([*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)])
    process.wait()
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1, 120)


def test_a_node_that_does_not_see_the_store_is_named(blind: str, store: Path) -> None:
    cluster = Cluster(Resources(), tell=print, reach=Reach(str(store)))
    machine = cluster()
    assert machine.cpus == 3
    with pytest.raises(
        ValueError, match=rf"^store={store}: node {blind} does not see it; name a folder that all nodes"
    ):
        Store(store, machine=cluster).get(Nothing())
    assert not list(store.glob("artifacts/**/manifest.json"))
    assert not list(store.glob("probe-*"))


def test_nodes_that_see_it_are_asked_once(nodes: Any, store: Path) -> None:
    first = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    reach = Reach(str(store))
    reach.ask()
    reach.require()
    assert not list(store.iterdir())
    reach.ask()
    assert not list(store.iterdir())  # nobody is to look for anything
    second = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    reach.ask()
    assert len(list(store.glob("probe-*"))) == 1  # for the node that has joined
    nodes.remove_node(second)
    reach.require()  # a node that is lost meanwhile refuses nothing
    nodes.remove_node(first)


def test_files_on_another_disk_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SECONDS_TO_APPEAR", 0.2)
    here = Folder(str(tmp_path / "store"), "artifacts/words/key")
    here.write_npy("a.npy", np.zeros(1))
    require_files(here, ["a.npy"])
    line = (
        rf"^{here.path('b.npy')}: not there, though a task has written it \(1 of 2 files are missing\); let all nodes"
    )
    with pytest.raises(StoreError, match=line):
        require_files(here, ["a.npy", "b.npy"])


def test_a_store_in_the_folder_of_a_job_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray unpacks a job whose files have changed into another folder."""
    package = tmp_path / "runtime_resources/working_dir_files/_ray_pkg_1"
    package.mkdir(parents=True)
    for folder, store, told in ((package, "store", 1), (package, str(tmp_path / "shared"), 0), (tmp_path, "store", 0)):
        monkeypatch.chdir(folder)
        plan = Plan(Store(store))
        preflight(parse(None, ["smoke", "--store", store]), Store(store), plan)
        assert sum("store=store: lies in the folder into which Ray" in note for note in plan.notes) == told
