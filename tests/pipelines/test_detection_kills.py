"""A worker is killed while a detector is trained by two of them: the detections are those of an undisturbed run."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import wait_for, while_it_runs, workers_of

from bownet.config import Data, Detection, Net
from bownet.images.scenes_voc import write_vocdevkit
from pipelines.machine import Machine
from pipelines.stages.detection import DetectionScore
from pipelines.stages.detection_trial import DetectionTrial
from pipelines.stages.images import Images
from pipelines.stages.teacher import RandomNet
from pipelines.store import Artifact, Store

pytestmark = pytest.mark.slow

NET = Net(arch="resnet18")
SETTINGS = Detection(
    steps=12,
    drops=(8,),
    warmup=2,
    batch=4,
    train_sizes=(48, 64),
    test_size=64,
    regions=4,
    proposals=10,
    trials=1,
    pictures=0,
)


def scored_in(root: Path, devkit: Path) -> Artifact:
    store = Store(root, machine=Machine(2, 1, False, 2))
    images = store.get(Images(Data(kind="voc", path=str(devkit), voc_train="trainval07", storage="encoded")))
    net = store.get(RandomNet(NET, 0, images, model="random"))
    trained = store.get(DetectionTrial(SETTINGS, 0, images, net, NET, model="random"))
    return store.get(DetectionScore(SETTINGS, images, (trained,), NET, model="random"))


def test_a_worker_is_killed(nodes: Any, tmp_path: Path) -> None:
    write_vocdevkit(tmp_path / "voc", trainval=6, test=20, seed=3, height=60, width=80)
    expected = scored_in(tmp_path / "undisturbed", tmp_path / "voc")

    def kill() -> int:
        wait_for(lambda: list((tmp_path / "disturbed").glob("scratch/detection-trial/*/checkpoint.pt")), 240)
        victim = workers_of(nodes.head_node, "RayTrainWorker")[-1]
        os.kill(victim.pid, signal.SIGKILL)
        return int(victim.pid)

    killed, made = while_it_runs(kill, lambda: scored_in(tmp_path / "disturbed", tmp_path / "voc"))
    assert killed
    assert made.key == expected.key
    assert np.array_equal(made.read_npy("detections-1.npy"), expected.read_npy("detections-1.npy"))
    losses = [
        [record["loss"] for record in artifact.read_json("details.json")["trials"][0]["history"]]
        for artifact in (made, expected)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == SETTINGS.steps
