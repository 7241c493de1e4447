"""What clusters do, in each stage of a run on three nodes: in the end the files are those of a calm run.

All artifacts but those of the stage are there from the calm run, so that it is the one which is disturbed.
"""

import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
from killing import wait_for
from mlflow_server import free_port, server

from tests.chaos.driver import Driver, contents
from tests.chaos.faults import fill
from tests.chaos.small_disk import leave_out, small_disk
from tests.chaos.three_nodes import ThreeNodes, processes_of, raylet_of

pytestmark = pytest.mark.faults

STAGES = {  # what is disturbed: the artifacts that are made again, what Ray calls the work, a file that shows it began
    "images": (("images",), "MapBatches", "artifacts/images/*/train-*.json"),
    "teacher": (("teacher",), "RayTrainWorker", "scratch/teacher/*/checkpoint.pt"),
    "vectors": (("vocabulary",), "MapBatches", "scratch/vocabulary/*/train-*.vectors.npy"),
    "k-means": (("vocabulary",), "ray::Worker", ""),
    "words": (("words",), "MapBatches", "artifacts/words/*/train-*.words.npy"),
    "student": (("student",), "RayTrainWorker", "scratch/student/*/checkpoint.pt"),
    "features": (("features",), "MapBatches", "artifacts/features/*/*.npy"),
    "evaluation": (("linear", "fewshot"), "artifacts/linear", ""),
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[ThreeNodes]:
    with ThreeNodes() as started:
        yield started


@pytest.fixture(scope="module")
def calm(nodes: ThreeNodes, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    folder = tmp_path_factory.mktemp("calm")
    driver = Driver(nodes.address, folder / "store", folder / "log")
    driver.start()
    assert driver.wait() == 0, driver.log.read_text()
    return driver


Work = tuple[Any, psutil.Process]  # a node of the cluster, and a process of it that does the stage's work


def begun(stage: str, nodes: ThreeNodes, calm: Driver, store: Path, log: Path, **variables: str) -> tuple[Driver, Work]:
    """A run that is in the middle of a stage. One that gets through it unseen is begun anew: some take a blink."""
    for _ in range(4):
        driver = Driver(nodes.address, store, log, **variables)
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(calm.store / "artifacts", store / "artifacts")
        for name in STAGES[stage][0]:
            shutil.rmtree(store / "artifacts" / name)
        driver.start()
        seen = wait_for(lambda driver=driver: at_the_moment(driver, stage, nodes), 120)
        if seen != "over":
            return driver, seen
    raise AssertionError(f"{stage} was always over too soon: {driver.log.read_text()}")


def at_the_moment(driver: Driver, stage: str, nodes: ThreeNodes) -> Work | str:
    _, work, shows = STAGES[stage]
    if (not shows or list(driver.store.glob(shows))) and (working := nodes.at_work(work)):
        return working[-1]
    if (code := driver.exit_code()) is not None:
        assert code == 0, driver.log.read_text()
        return "over"
    return ""


def assert_like(driver: Driver, calm: Driver) -> None:
    assert driver.wait() == 0, driver.log.read_text()
    assert contents(driver.store) == contents(calm.store)
    assert driver.metrics() == calm.metrics()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("killed", ["worker", "node", "driver"])
def test_a_kill(killed: str, stage: str, nodes: ThreeNodes, calm: Driver, tmp_path: Path) -> None:
    driver, (node, worker) = begun(stage, nodes, calm, tmp_path / "store", tmp_path / "log")
    if killed == "driver":
        driver.kill()
        driver.start()
    elif killed == "node":
        assert node is not nodes.head
        nodes.replace(node)
    else:
        worker.kill()  # SIGKILL; Ray keeps the process for a while also where the work has just ended
    assert_like(driver, calm)


@pytest.mark.parametrize("raylet", [False, True], ids=["workers", "and raylet"])
@pytest.mark.parametrize("stage", ["words", "student"])
def test_a_node_stands_still_for_a_while(
    stage: str, raylet: bool, nodes: ThreeNodes, calm: Driver, tmp_path: Path
) -> None:
    driver, (node, _) = begun(stage, nodes, calm, tmp_path / "store", tmp_path / "log")
    stopped = [*processes_of(node), *([raylet_of(node)] if raylet else [])]
    for process in stopped:
        process.suspend()
    time.sleep(8)
    for process in stopped:
        process.resume()
    assert_like(driver, calm)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["words", "student"])
def test_a_node_that_hangs_is_given_up(stage: str, nodes: ThreeNodes, calm: Driver, tmp_path: Path) -> None:
    """Its connections stay open and nothing answers; Ray takes most of a minute to give it up. Another one is there."""
    driver, (node, _) = begun(stage, nodes, calm, tmp_path / "store", tmp_path / "log")
    stopped = [*processes_of(node), raylet_of(node)]
    for process in stopped:
        process.suspend()
    nodes.others.append(nodes.add())
    try:
        assert_like(driver, calm)
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.Error):
                process.resume()
        nodes.lose(node)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    with small_disk(tmp_path) as mounted:
        if not mounted.is_mount():
            leave_out("a file system cannot be mounted here")
        yield mounted


@pytest.mark.parametrize("stage", ["images", "words", "student"])
def test_the_disk_is_full(stage: str, nodes: ThreeNodes, calm: Driver, disk: Path, tmp_path: Path) -> None:
    driver, _ = begun(stage, nodes, calm, disk / "store", tmp_path / "log")
    fill(disk / "ballast")
    assert driver.wait() == 2, driver.log.read_text()
    (disk / "ballast").unlink()
    assert re.search(r"^error: .*No space left on device", driver.log.read_text(), re.MULTILINE)
    driver.start()
    assert_like(driver, calm)


def test_the_store_can_no_longer_be_written_to(nodes: ThreeNodes, calm: Driver, tmp_path: Path) -> None:
    """From the middle of a training on: neither its checkpoints nor the network have a place.

    Not by a mount that becomes read-only: the kernel allows that only while no file of it is open for writing, and a
    program that builds holds a lock.
    """
    driver, _ = begun("student", nodes, calm, tmp_path / "store", tmp_path / "log")
    folders = [*driver.store.glob("scratch/student/*"), driver.store / "artifacts"]
    try:
        if not chattr("+i", folders):
            driver.kill()
            leave_out("folders cannot be made immutable here; chattr of e2fsprogs, on ext4 or the like")
        assert len(folders) == 2  # it is in the middle
        assert driver.wait() == 2, driver.log.read_text()
    finally:
        chattr("-i", folders)
    assert re.search(r"^error: .*: cannot write: Operation not permitted", driver.last_line())
    assert not list(driver.store.glob("artifacts/student/*/manifest.json"))
    driver.start()
    assert_like(driver, calm)


def chattr(how: str, folders: list[Path]) -> bool:
    return subprocess.run(["chattr", how, *map(str, folders)], capture_output=True).returncode == 0


def test_two_drivers_on_one_store(nodes: ThreeNodes, calm: Driver, tmp_path: Path) -> None:
    """Nothing is built twice; who comes second waits for what the other builds."""
    drivers = [Driver(nodes.address, tmp_path / "store", tmp_path / name) for name in ("a", "b")]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        assert_like(driver, calm)
    reports = [json.loads(driver.json.read_text()) for driver in drivers]
    built = [stage["key"] for report in reports for stage in report["stages"] if not stage["cached"]]
    assert len(built) == len(set(built)) == len({stage["key"] for stage in reports[0]["stages"]})


def test_the_mlflow_server_is_away_for_a_while(nodes: ThreeNodes, calm: Driver, tmp_path: Path) -> None:
    """From the middle of the first training; it gets what it has missed before the run ends."""
    port = free_port()
    with server(tmp_path, port) as address:
        driver = Driver(nodes.address, tmp_path / "store", tmp_path / "log", MLFLOW_TRACKING_URI=address)
        driver.start()
        wait_for(lambda: list(driver.store.glob("scratch/teacher/*/checkpoint.pt")), 120)
    wait_for(lambda: "does not answer" in driver.log.read_text(), 120)
    with server(tmp_path, port):
        assert_like(driver, calm)
        assert_all_is_logged(driver, address)


def test_the_mlflow_server_is_gone_for_good(nodes: ThreeNodes, calm: Driver, tmp_path: Path) -> None:
    """Nothing waits for it; the next run logs everything from the store."""
    port = free_port()
    with server(tmp_path, port) as address:
        driver, _ = begun("student", nodes, calm, tmp_path / "store", tmp_path / "log", MLFLOW_TRACKING_URI=address)
    assert_like(driver, calm)
    assert "does not answer" in driver.log.read_text()
    with server(tmp_path, port):
        driver.start()
        assert_like(driver, calm)
        assert_all_is_logged(driver, address)


def assert_all_is_logged(driver: Driver, address: str) -> None:
    client = mlflow.MlflowClient(address)
    run = client.get_run(json.loads(driver.json.read_text())["mlflow"]["run_id"])
    models = client.search_runs([run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
    assert {run.info.status, *(model.info.status for model in models)} == {"FINISHED"}
    logged = {model.info.run_name: model.data.metrics for model in models}
    for name, metrics in driver.metrics().items():
        assert logged[name].items() >= metrics.items()
    (bownet,) = (model for model in models if model.info.run_name == "BoWNet")
    losses = client.get_metric_history(bownet.info.run_id, "train/loss")
    assert [loss.step for loss in losses] == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_node_that_never_comes_back(nodes: ThreeNodes, tmp_path: Path) -> None:
    """Four workers need both nodes; the stage waits for the lost one, but not for ever."""
    few = {"resources.workers": "4", "resources.stall-minutes": "0.5"}
    driver = Driver(nodes.address, tmp_path / "store", tmp_path / "log", few)
    driver.start()
    wait_for(lambda: list(driver.store.glob("scratch/teacher/*/checkpoint.pt")), 120)
    nodes.lose(nodes.others[-1])
    try:
        assert driver.wait() == 1, driver.log.read_text()
    finally:
        nodes.others.append(nodes.add())
    assert re.search(r"RotNet: training: no sign of life for 30 s. A node is lost", driver.last_line())
    driver.start()
    assert driver.wait() == 0, driver.log.read_text()


@pytest.mark.slow
def test_more_images_than_object_stores_hold(tmp_path: Path) -> None:
    """100 MB of images where a node's store has 80: Ray writes to the disk what does not fit."""
    large = {"data.train": "8100", "data.image-size": "64", "data.shard-size": "400", "resources.stream": "false"}
    large |= {"teacher.kind": "random", "student.optimiser.epochs": "1"}
    metrics = []
    for size in (400, 80):
        with ThreeNodes(object_store_mb=size) as nodes:
            driver = Driver(nodes.address, tmp_path / f"{size}", tmp_path / f"{size}.log", large)
            driver.start()
            assert driver.wait(400) == 0, driver.log.read_text()
            metrics.append((driver.metrics(), contents(driver.store)))
            assert nodes.have_spilled() == (size == 80)
    assert metrics[0] == metrics[1]
