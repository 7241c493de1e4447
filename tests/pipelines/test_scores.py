"""Scores of frozen features as artifacts, on a real Ray: files, cards, obstacles, and comparisons between models."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bownet.config import Data, Fewshot, Knn, Linear, Net, Retrieval
from evaluation.fewshot import compare_paired, fewshot_accuracies
from evaluation.linear import linear_score
from pipelines.machine import Machine
from pipelines.stages.features import Features, read_features
from pipelines.stages.fewshot import FewshotScore, paired_comparison
from pipelines.stages.images import Images
from pipelines.stages.knn import KnnScore
from pipelines.stages.linear import LinearScore
from pipelines.stages.pictures import labels_of, load_split
from pipelines.stages.retrieval import RetrievalScore
from pipelines.stages.scoring import common_labels, label_obstacle
from pipelines.stages.teacher import RandomNet
from pipelines.store import Artifact, Store

NET = Net(arch="wrn-10-1")
LINEAR = Linear(epochs=3, taps=("block3", "pool"), pool="4x4")
FEWSHOT = Fewshot(shots=(1, 5), queries=3, episodes=40)


class World:
    def __init__(self, root: Path, machine: Machine) -> None:
        self.store = Store(root, machine=machine)
        self.images = self.store.get(Images(Data(train=120, test=60, novel_per_class=8, image_size=16)))

    def features(self, seed: int, images: Artifact | None = None) -> Artifact:
        images = images or self.images
        net = self.store.get(RandomNet(NET, seed, images, model=f"random {seed}"))
        return self.store.get(Features(images, net, NET, ("block3",), "4x4", model=f"random {seed}"))

    def fewshot(self, seed: int, config: Fewshot = FEWSHOT, images: Artifact | None = None) -> Artifact:
        images = images or self.images
        return self.store.get(FewshotScore(config, images, self.features(seed, images), model="random"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> World:
    return World(tmp_path_factory.mktemp("store"), machine)


def card(artifact: Artifact) -> dict[str, Any]:
    return artifact.read_json("protocol.json")


def test_linear(world: World) -> None:
    features = world.features(0)
    made = world.store.get(LinearScore(LINEAR, 5, world.images, features, model="random"))
    classes, (train, test) = common_labels(world.images, "train", "test")
    cached = {t: (read_features(features, "train", t), read_features(features, "test", t)) for t in LINEAR.taps}
    expected = linear_score(cached, train, test, LINEAR, 5, "pool")
    metrics = made.read_json("metrics.json")
    assert metrics == pytest.approx({f"linear/{name}": value for name, value in expected.metrics.items()}, abs=2)
    assert {"linear/top1", "linear/top5", "linear/train_top1", "linear/pool/top1", "linear/block3/top5"} <= set(metrics)
    assert made.info["metrics"] == metrics
    details = made.read_json("details.json")
    assert details["classes"] == classes
    assert len(classes) == len([n for n in world.images.info["class_counts"]["train"] if n])
    assert np.array(details["block3"]["confusion"]).sum() == 60
    told = card(made)
    assert told["data"]["key"] == world.images.key
    assert told["data"]["train"] == {"split": "train", "images": 120, "classes": 12}
    assert told["pooling"]["block3"] == "adaptive average pool of 4x4 -> 64x4x4"
    assert (told["solver"]["epochs"], told["normalisation"], told["seeds"]) == (3, "none", {"classifier": 5})


def test_linear_is_scored_anew_only_for_what_matters_to_it(world: World) -> None:
    stage = LinearScore(LINEAR, 5, world.images, world.features(0), model="random")

    def key(**settings: object) -> str:
        return world.store.plan(replace(stage, linear=LINEAR.model_copy(update=settings))).key

    assert key(crop_area=(0.5, 1.0)) == key(pool="9k") == key()  # online only; and part of the features' own key
    assert len({key(), key(epochs=4), key(nesterov=True), key(taps=("pool",)), key(batch_norm=True)}) == 5


def test_pool_is_on_the_card_only_where_a_map_was_pooled(world: World) -> None:
    """Without one it is in no key: what was asked for second has the card that was made first."""
    made = world.store.get(LinearScore(Linear(epochs=1, pool="4x4"), 5, world.images, world.features(0), model="x"))
    assert card(made)["solver"]["pool"] == "global"
    with_a_map = world.store.get(LinearScore(LINEAR, 5, world.images, world.features(0), model="random"))
    assert card(with_a_map)["solver"]["pool"] == "4x4"


def test_fewshot_keeps_every_episode(world: World) -> None:
    made = world.fewshot(0)
    _, (labels,) = common_labels(world.images, "novel")
    expected = fewshot_accuracies(read_features(world.features(0), "novel", "pool"), labels, FEWSHOT)
    rows = made.read_npy("episodes.npy")
    assert rows.shape == (2, 40)
    assert rows.tolist() == [expected[1].tolist(), expected[5].tolist()]
    metrics = made.read_json("metrics.json")
    assert metrics.keys() == {"fewshot/1shot", "fewshot/1shot_ci95", "fewshot/5shot", "fewshot/5shot_ci95"}
    assert metrics["fewshot/5shot"] == pytest.approx(100 * rows[1].mean())
    assert card(made)["data"]["test"]["split"] == "novel"
    assert card(made)["seeds"] == {"episodes": FEWSHOT.seed}


def test_two_results_are_compared_in_pairs(world: World) -> None:
    a, b = world.fewshot(0), world.fewshot(1)
    _, (labels,) = common_labels(world.images, "novel")
    each = [fewshot_accuracies(read_features(world.features(s), "novel", "pool"), labels, FEWSHOT) for s in (0, 1)]
    assert paired_comparison(a, b) == {n: compare_paired(each[0][n], each[1][n]) for n in (1, 5)}
    assert paired_comparison(a, b)[5].mean == pytest.approx(-paired_comparison(b, a)[5].mean)
    assert paired_comparison(a, a)[1] == (0, 0)


def test_results_on_other_episodes_are_not_compared(world: World) -> None:
    a = world.fewshot(0)
    other = world.fewshot(0, FEWSHOT.model_copy(update={"seed": 3}))
    with pytest.raises(ValueError, match=rf"{a.ref} and {other.ref} saw different episodes \(fewshot.seed: 0 and 3\)"):
        paired_comparison(a, other)
    data = Data(train=120, test=60, novel_per_class=9, image_size=16)
    more = world.fewshot(0, images=world.store.get(Images(data)))
    with pytest.raises(ValueError, match=r"saw different episodes \(images and labels: \w{12} and \w{12}\)"):
        paired_comparison(a, more)


def test_knn_and_retrieval(world: World) -> None:
    features = world.features(0)
    knn = world.store.get(KnnScore(Knn(neighbours=(1, 20)), world.images, features, model="random"))
    found = world.store.get(RetrievalScore(Retrieval(ranks=(1,)), world.images, features, model="random"))
    first, precision = knn.read_json("metrics.json"), found.read_json("metrics.json")
    assert first.keys() == {"knn/top1_1", "knn/top1_20"}
    assert precision.keys() == {"retrieval/map", "retrieval/precision_1"}
    assert precision["retrieval/precision_1"] == pytest.approx(first["knn/top1_1"])  # the same question
    for made in (knn, found):
        assert card(made)["data"]["test"]["images"] == 60
        assert made.read_json("details.json")["classes"]
    assert card(knn)["solver"]["temperature"] == 0.07


def test_every_card_says_what_was_done(world: World) -> None:
    scores = [
        LinearScore(LINEAR, 5, world.images, world.features(0), model="random"),
        FewshotScore(FEWSHOT, world.images, world.features(0), model="random"),
        KnnScore(Knn(neighbours=(1, 20)), world.images, world.features(0), model="random"),
        RetrievalScore(Retrieval(ranks=(1,)), world.images, world.features(0), model="random"),
    ]
    said = {"protocol", "data", "view", "pooling", "normalisation", "solver", "metric", "frozen", "seeds", "versions"}
    for stage in scores:
        assert said <= card(world.store.get(stage)).keys()


def test_a_second_look_builds_nothing(world: World) -> None:
    world.fewshot(0)
    world.fewshot(0)
    assert world.store.events[-1].cached


def folder(root: Path, files: dict[str, int]) -> Artifact:
    """A planned, not yet built, set of so many images in each folder; `train/a` is class a of the training images."""
    rng = np.random.default_rng(0)
    for name, count in files.items():
        (root / "set" / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(root / "set" / name / f"{i}.png")
    return Store(root / "store").plan(Images(Data(kind="folder", path=str(root / "set"), image_size=16)))


def test_a_shard_whose_images_are_all_bad_is_passed_over(tmp_path: Path, machine: Machine) -> None:
    planned = folder(tmp_path, {"train/a": 4, "train/b": 4, "test/a": 4, "test/b": 4})
    for name in ("a/0", "a/1"):
        (tmp_path / "set/test" / f"{name}.png").write_bytes(b"no image")
    assert isinstance(planned.stage, Images)
    data = planned.stage.data.model_copy(update={"shard_size": 2, "max_bad_fraction": 0.5})
    images = Store(tmp_path / "store", machine=machine).get(Images(data))
    assert [row["start"] for row in images.info["shards"] if row["split"] == "test"] == [0, 0, 2, 4]
    assert labels_of(images, "test").tolist() == [0, 0, 1, 1, 1, 1]
    assert load_split(images, "test").shape == (6, 16, 16, 3)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"train/a": 3, "train/b": 3, "test/a": 2, "test/b": 1}, None),
        ({"train/a": 3, "train/b": 3, "test/a": 2}, "the test images are all of one class"),
        ({"train": 5, "test": 2}, "the train images have no class labels"),
    ],
)
def test_images_that_cannot_be_scored_are_told_before_anything_runs(
    tmp_path: Path, files: dict[str, int], reason: str | None
) -> None:
    images = folder(tmp_path, files)
    small = {"knn": Knn(neighbours=(1,)), "retrieval": Retrieval(ranks=(1,))}
    found = {
        "linear": LinearScore.obstacle(images, Linear()),
        "k-NN": KnnScore.obstacle(images, small["knn"]),
        "retrieval": RetrievalScore.obstacle(images, small["retrieval"]),
    }
    for name, obstacle in found.items():
        assert obstacle == (f"{name} is left out: {reason}" if reason else None)


def test_test_images_of_other_classes_are_told(tmp_path: Path) -> None:
    """Every answer would be wrong, which is no score."""
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, "png")
    for split, labels in (("train", [0, 1] * 4), ("test", [2, 3] * 2)):
        rows = {"image": [{"bytes": content.getvalue(), "path": None}] * len(labels), "label": labels}
        pq.write_table(pa.table(rows), tmp_path / f"{split}-00000-of-00001.parquet")
    images = Store(tmp_path / "store").plan(Images(Data(kind="parquet", path=str(tmp_path), image_size=16)))
    assert label_obstacle(images, "train") is label_obstacle(images, "test") is None
    said = "linear is left out: the train and the test images have no class in common"
    assert LinearScore.obstacle(images, Linear()) == said


def test_too_many_neighbours_answers_or_shots_are_told(world: World) -> None:
    images = world.images
    assert KnnScore.obstacle(images, Knn()) == (
        "k-NN is left out: knn.neighbours=200: there are 120 training images, use 1..120"
    )
    assert KnnScore.obstacle(images, Knn(neighbours=(120,))) is None
    assert RetrievalScore.obstacle(images, Retrieval(ranks=(121,))) == (
        "retrieval is left out: retrieval.ranks=121: there are 120 images to find, use 1..120"
    )
    assert label_obstacle(images, "train", "val") == "there are no val images"
    assert FewshotScore.obstacle(images, FEWSHOT) is None
    assert "6 shots and 3 queries need 9 images of each class, the smallest has 8" in str(
        FewshotScore.obstacle(images, FEWSHOT.model_copy(update={"shots": (1, 6)}))
    )
