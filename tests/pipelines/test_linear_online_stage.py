"""Online linear classifiers and fine-tuning as stages, on a real Ray Train."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray.cloudpickle
import torch
from safetensors.torch import load_file
from torch import nn

from bownet.config import Data, Experiment, Finetune, Linear, Net, Optimiser, Transfer
from bownet.images.augment import to_float
from bownet.training import InMemory, Shard
from evaluation.finetune import labelled_rows
from evaluation.linear_online import OnlineLinear
from evaluation.paper import report
from pipelines.evaluators import EVALUATORS, Ground
from pipelines.machine import Machine
from pipelines.plan import Plan
from pipelines.stages.finetune import FinetuneScore, FinetuneTraining, one_fraction_each
from pipelines.stages.images import Images
from pipelines.stages.inputs import Streamed, shared_cpus
from pipelines.stages.linear_online import OnlineLinearScore, TransferScore
from pipelines.stages.pictures import labels_of, load_split
from pipelines.stages.teacher import RandomNet
from pipelines.stages.testing import class_numbers, classes_of
from pipelines.store import Artifact, Store

LINEAR = Linear(features="online", taps=("block2", "pool"), pool="4x4", epochs=2, batch=32, batch_norm=True)


@pytest.fixture(scope="module")
def store(raw: Artifact, machine: Machine) -> Store:
    return Store(raw.root, machine=machine)


@pytest.fixture(scope="module")
def net(raw: Artifact, store: Store) -> Artifact:
    return store.get(RandomNet(Net(arch="wrn-10-1"), 0, raw, model="random"))


def test_heads_are_trained_and_tested_and_the_network_stays(raw: Artifact, net: Artifact, store: Store) -> None:
    stage = OnlineLinearScore(LINEAR, 0, raw, net, model="random")
    made = store.get(stage)
    metrics, details = made.read_json("metrics.json"), made.read_json("details.json")
    assert metrics.keys() == {f"linear/{tap}{top}" for tap in ("block2/", "pool/", "") for top in ("top1", "top5")}
    assert metrics["linear/top1"] == metrics["linear/pool/top1"]
    sha256 = made.info["backbone_sha256"]
    assert sha256["before"] == sha256["after"]

    classes = classes_of(raw)
    task = stage.task(len(classes), crops=False)
    task.heads.load_state_dict(load_file(made.local_path("heads.safetensors")))
    labels = torch.from_numpy(class_numbers(raw, "test", classes))
    with torch.no_grad():
        scores = task.eval().logits(to_float(torch.from_numpy(load_split(raw, "test"))))
    for tap in ("block2", "pool"):
        right = (scores[tap].argmax(1) == labels).double().mean().item()
        assert metrics[f"linear/{tap}/top1"] == pytest.approx(100 * right)
        five = (scores[tap].topk(5).indices == labels[:, None]).any(1).double().mean().item()
        assert metrics[f"linear/{tap}/top5"] == pytest.approx(100 * five)
        confusion = np.array(details[tap]["confusion"])
        assert confusion.sum() == len(labels)
        assert 100 * confusion.trace() / len(labels) == pytest.approx(metrics[f"linear/{tap}/top1"])
    card = made.read_json("protocol.json")
    assert card["data"]["train"] == {"split": "train", "images": 100, "classes": 12}
    assert card["pooling"].keys() == {"block2", "pool"}
    assert card["solver"]["workers"] == made.info["workers"]
    assert "of the test's short side 16, centre crop 16x16" in card["view"]["train"]
    assert details["classes"] == [raw.info["categories"][c] for c in classes]


@pytest.mark.slow
def test_transfer_is_the_same_on_another_set_under_its_name(raw: Artifact, net: Artifact, store: Store) -> None:
    other = Data(train=48, test=24, novel_per_class=1, image_size=16, shard_size=30, seed=1)
    images = store.get(Images(other))
    assert TransferScore.obstacle(images) is None
    made = store.get(TransferScore(LINEAR, 0, images, net, model="random"))
    metrics, card = made.read_json("metrics.json"), made.read_json("protocol.json")
    assert metrics.keys() == {f"scenes/{tap}{top}" for tap in ("block2/", "pool/", "") for top in ("top1", "top5")}
    assert (card["evaluator"], card["data"]["train"]["images"]) == ("transfer", 48)
    said = report(card)
    assert said is not None
    assert said.startswith("transfer: 48 training images of scenes instead of Places205's 2,448,873; ")
    same = store.plan(OnlineLinearScore(LINEAR, 0, images, net, model="random"))
    assert same.key != made.key


@pytest.mark.parametrize(
    ("evaluator", "settings", "said"),
    [
        ("transfer", {"data": Data(kind="places205", path="nowhere", image_size=224)}, "transfer.data.path=nowhere: "),
        ("voc07_svm", {"path": "nowhere"}, "voc07_svm.path=nowhere: "),
        ("detection", {"path": "nowhere"}, "detection.path=nowhere: "),
    ],
)
def test_an_absent_set_is_named_by_the_setting_that_says_where(
    evaluator: str, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    exp = Experiment.model_validate({"evaluators": [evaluator], evaluator: settings})
    ground = Ground(exp, exp.data, 0, Plan(Store(tmp_path)))
    with pytest.raises(ValueError, match=f"^{said}"):
        EVALUATORS[evaluator].obstacle(ground)


def test_transfer_is_online() -> None:
    with pytest.raises(ValueError, match="features=cached: on another set only online is there"):
        Transfer(linear=Linear())


def test_a_part_of_the_images_streams_as_it_lies_in_memory(raw: Artifact, machine: Machine) -> None:
    rows, config = np.array([3, 4, 40, 77, 98]), Optimiser(batch=3, iterations_per_epoch=None)
    streamed = Streamed(raw, None, shared_cpus(machine, True), rows)
    memory = InMemory(load_split(raw, "train")[rows])
    assert len(streamed) == len(memory) == 5
    shard = Shard(1, 2)
    for a, b in zip(streamed.epoch(config, 0, 1, shard), memory.epoch(config, 0, 1, shard), strict=True):
        assert torch.equal(a, b)


class Moving(OnlineLinear):
    """Forgets that the network is frozen."""

    def train(self, mode: bool = True) -> OnlineLinear:
        nn.Module.train(self, mode)
        return self


class MovingScore(OnlineLinearScore):
    name = "linear-moving"

    def task(self, classes: int, crops: bool = True) -> OnlineLinear:
        made = super().task(classes, crops)
        made.__class__ = Moving
        return made


@pytest.mark.slow
def test_a_network_that_moves_gives_no_score(raw: Artifact, net: Artifact, store: Store) -> None:
    ray.cloudpickle.register_pickle_by_value(__import__(__name__))
    stage = MovingScore(LINEAR, 0, raw, net, model="random")
    with pytest.raises(RuntimeError, match="the frozen network has changed"):
        store.get(stage)
    assert not store.plan(stage).exists()


def test_fine_tuning_uses_a_share_of_the_labels(raw: Artifact, net: Artifact, store: Store) -> None:
    config = Finetune(fractions=(0.3,), epochs=2, drops=(1,), batch=16)
    trained = tuple(store.get(FinetuneTraining(one, 0, raw, net, model="random")) for one in one_fraction_each(config))
    rows = labelled_rows(labels_of(raw, "train"), 0.3, 0)
    assert trained[0].info["labelled"] == len(rows) < 40
    assert trained[0].info["epochs"] == 2
    made = store.get(FinetuneScore(config, 0, raw, net, trained, model="random"))
    metrics: dict[str, Any] = made.read_json("metrics.json")
    assert metrics.keys() == {"finetune/30pct/top1", "finetune/30pct/top5"}
    assert 0 <= metrics["finetune/30pct/top1"] <= metrics["finetune/30pct/top5"] <= 100
    card = made.read_json("protocol.json")
    assert card["data"]["labelled"] == {"30pct": len(rows)}
    assert card["solver"]["workers"] == {"30pct": trained[0].info["workers"]}
    alone = trained[0].info["workers"] == 1
    assert card["solver"]["norm_statistics"] == {"30pct": "the whole batch" if alone else "each worker's own images"}
    assert len(made.read_json("details.json")["classes"]) == trained[0].info["classes"]
    state = load_file(trained[0].local_path("classifier.safetensors"))
    start = load_file(net.local_path("backbone.safetensors"))
    assert not torch.equal(state["backbone.stem.weight"], start["stem.weight"])
    manifest = json.loads(Path(made.path("manifest.json")).read_text())
    assert manifest["inputs"]["30pct"] == trained[0].ref
