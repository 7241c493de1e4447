"""A worker, a node or the driver is killed while Ray Train trains: the weights are those of an undisturbed run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import environment
from killing import kill_all, wait_for, while_it_runs, workers_of
from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import DefaultAutoscalingCoordinator

from bownet.config import Data, Optimiser, Teacher
from pipelines.machine import Machine, connect
from pipelines.stages.images import Images
from pipelines.stages.teacher import TrainTeacher
from pipelines.stages.training import CHECKPOINT
from pipelines.store import Artifact, Store

pytestmark = pytest.mark.slow

EPOCHS = 6
TRAINING = "RayTrainWorker"  # what Ray calls a process that trains
DATA = Data(train=400, test=12, novel_per_class=1, image_size=24)
TEACHER = Teacher(arch="wrn-10-1", optimiser=Optimiser(epochs=EPOCHS, iterations_per_epoch=None, batch=50, drops=(4,)))
TIMES = {"time", "images_per_second", "input_wait", "peak_memory_gb"}


def trained_in(root: Path, cpus_per_worker: int = 1, min_workers: int | None = None) -> Artifact:
    """A teacher, trained by two workers."""
    store = Store(root, machine=Machine(2, cpus_per_worker, False, 2, min_workers=min_workers))
    images = store.get(Images(DATA))
    return store.get(TrainTeacher(TEACHER, 0, images, model="RotNet"))


@pytest.fixture(scope="module")
def undisturbed(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return trained_in(tmp_path_factory.mktemp("undisturbed"))


def assert_same_training(made: Artifact, expected: Artifact) -> None:
    assert made.key == expected.key
    assert made.read_bytes("backbone.safetensors") == expected.read_bytes("backbone.safetensors")
    histories = [
        [{k: v for k, v in record.items() if k not in TIMES} for record in artifact.read_json("history.json")]
        for artifact in (made, expected)
    ]
    assert histories[0] == histories[1]
    assert len(histories[0]) == EPOCHS


def checkpoints(root: Path) -> list[Path]:
    return list(root.glob(f"scratch/*/*/{CHECKPOINT}"))


def kill_one(root: Path, workers: Callable[[], list[Any]]) -> Callable[[], int]:
    """Kill a worker after the first epoch; its process id."""

    def kill() -> int:
        wait_for(lambda: checkpoints(root), 120)
        victim = workers()[-1]
        os.kill(victim.pid, signal.SIGKILL)
        return int(victim.pid)

    return kill


def test_a_worker_is_killed(nodes: Any, undisturbed: Artifact, tmp_path: Path) -> None:
    kill = kill_one(tmp_path, lambda: workers_of(nodes.head_node, TRAINING))
    killed, made = while_it_runs(kill, lambda: trained_in(tmp_path))
    assert killed
    assert_same_training(made, undisturbed)


def test_the_driver_is_killed(nodes: Any, undisturbed: Artifact, tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    with log.open("w") as output:
        command = [sys.executable, __file__, str(tmp_path)]
        driver = subprocess.Popen(command, env=environment(RAY_ADDRESS=nodes.address), stdout=output, stderr=output)
    try:
        wait_for(lambda: checkpoints(tmp_path) or driver.poll() is not None, 120)
        assert driver.poll() is None, log.read_text()
    finally:
        driver.kill()  # SIGKILL
        driver.wait()
    wait_for(lambda: not workers_of(nodes.head_node, TRAINING))  # they do not outlive it
    assert_same_training(trained_in(tmp_path), undisturbed)


def test_a_node_is_lost_and_replaced(nodes: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two workers of two CPUs each: one on each node, and no room for both on one."""
    second = nodes.add_node(num_cpus=2)
    expected = trained_in(tmp_path_factory.mktemp("undisturbed"), cpus_per_worker=2)

    def replace() -> int:
        wait_for(lambda: checkpoints(tmp_path), 120)
        there = workers_of(second, TRAINING)
        nodes.remove_node(second, allow_graceful=False)
        kill_all(there)
        replacement.append(nodes.add_node(num_cpus=2))
        return len(there)

    replacement: list[Any] = []
    there, made = while_it_runs(replace, lambda: trained_in(tmp_path, cpus_per_worker=2))
    nodes.remove_node(replacement[0])
    assert there == 1
    assert_same_training(made, expected)


def offered(cpus: int) -> int:
    """Workers of so many CPUs that an elastic training would begin with: Ray asks an actor that sees nodes late."""
    coordinator = DefaultAutoscalingCoordinator("tests")
    coordinator.request_resources([{"CPU": cpus}] * 4, expire_after_s=60)
    try:
        coordinator.get_reserved_resources()  # asks
        time.sleep(1)
        held = coordinator.get_reserved_resources()  # has the answer
        return sum(int(node.get("CPU", 0)) // cpus for node in held.values())
    finally:
        coordinator.cancel_request()


def test_a_node_is_lost_and_fewer_go_on(nodes: Any, undisturbed: Artifact, tmp_path: Path) -> None:
    """With another number of workers the numbers differ, as batch norm sees whole batches; the records tell.

    The images are made first: CPUs that Ray Data has asked for are not offered to Ray Train for a while, which would
    begin with one worker.
    """
    Store(tmp_path, machine=Machine(2, 2, False, 2)).get(Images(DATA))
    second = nodes.add_node(num_cpus=2)
    wait_for(lambda: offered(cpus=2) >= 2, 120)

    def lose() -> None:
        wait_for(lambda: checkpoints(tmp_path), 120)
        nodes.remove_node(second, allow_graceful=False)

    _, made = while_it_runs(lose, lambda: trained_in(tmp_path, cpus_per_worker=2, min_workers=1))
    workers = [record["workers"] for record in made.read_json("history.json")]
    assert len(workers) == EPOCHS
    assert (workers[0], workers[-1]) == (2, 1)
    assert made.info["workers"] == 1
    assert made.key == undisturbed.key


if __name__ == "__main__":  # the driver that is killed
    connect()
    trained_in(Path(sys.argv[1]))
