"""The stage of detection on real Ray: drawn VOC images, a small network, and what must be refused at once."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bownet.config import Data, Detection, Net
from bownet.images.scenes_voc import NAMES, write_vocdevkit
from evaluation.cards import PARTLY
from evaluation.paper import report
from evaluation.voc_detection import ground_truth, voc_detection
from pipelines.machine import Machine
from pipelines.stages.annotated import categories_of, names_and_annotations
from pipelines.stages.detection import DetectionScore, detections_figure, detections_in, over_trials
from pipelines.stages.detection_trial import DetectionTrial
from pipelines.stages.images import Images
from pipelines.stages.teacher import RandomNet
from pipelines.store import Artifact, Store, Workspace

NET = Net(arch="resnet18")
TINY = Detection(
    steps=2,
    drops=(),
    warmup=1,
    batch=2,
    train_sizes=(48, 64),
    test_size=64,
    regions=4,
    proposals=5,
    trials=2,
    pictures=3,
)


def voc(path: Path, **settings: Any) -> Data:
    settings = {"voc_train": "trainval07", "storage": "encoded", "image_size": 64, **settings}
    return Data(kind="voc", path=str(path), **settings)


@pytest.fixture(scope="module")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("voc")
    write_vocdevkit(root, trainval=6, test=20, seed=3, height=60, width=80)
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Store:
    """With two workers, so that gradients are exchanged."""
    return Store(tmp_path_factory.mktemp("store"), machine=replace(machine, workers=2, cpus_per_worker=1))


def trials(store: Store, data: Data, settings: Detection = TINY, net: Net = NET) -> list[DetectionTrial]:
    images = store.plan(Images(data))
    weights = store.plan(RandomNet(net, 0, images, model="random"))
    return [DetectionTrial(settings, trial, images, weights, net, model="random") for trial in range(settings.trials)]


def stage(store: Store, data: Data, settings: Detection = TINY) -> DetectionScore:
    images, trained = store.plan(Images(data)), tuple(map(store.plan, trials(store, data, settings)))
    return DetectionScore(settings, images, trained, NET, model="random")


@pytest.fixture(scope="module")
def score(store: Store, devkit: Path) -> Artifact:
    first, second = trials(store, voc(devkit))
    first.check()  # before the images are stored
    store.get(first)
    first.check()  # and after
    store.get(second)
    return store.get(stage(store, voc(devkit)))


def test_metrics_are_those_of_the_files(score: Artifact) -> None:
    metrics = score.read_json("metrics.json")
    assert score.info["metrics"] == metrics
    assert isinstance(score.stage, DetectionScore)
    names, annotations = names_and_annotations(score.stage.images, "test")
    assert score.read_json("images.json") == names
    truth = ground_truth(names, annotations, categories_of(score.stage.images))
    trials = [voc_detection(detections_in(score.read_npy(f"detections-{i}.npy")), truth).metrics for i in (1, 2)]
    for name in ("ap50", "ap75", "ap"):
        values = [trial[name] for trial in trials]
        assert metrics[f"detection/{name}"] == pytest.approx(np.mean(values))
        assert metrics[f"detection/{name}_std"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    details = score.read_json("details.json")
    assert [trial["metrics"] for trial in details["trials"]] == trials
    assert [(record["step"], record["workers"]) for record in details["trials"][0]["history"]] == [(1, 2), (2, 2)]


def test_detections_are_within_their_images_and_differ_between_trials(score: Artifact) -> None:
    first, second = (score.read_npy(f"detections-{i}.npy") for i in (1, 2))
    assert first.dtype == np.float32
    assert len(first)
    assert set(first[:, 0]) <= set(range(20))
    assert ((first[:, 3:] >= 0) & (first[:, 3:] <= [80, 60, 80, 60])).all()
    assert ((first[:, 2] > 0.05) & (first[:, 2] <= 1)).all()
    assert first.shape != second.shape or not np.array_equal(first, second)


def test_the_card(score: Artifact, devkit: Path) -> None:
    card = score.read_json("protocol.json")
    assert json.dumps(card).count(str(devkit)) == 0
    assert card["evaluator"] == "detection"
    assert card["data"]["train"] == {"split": "train", "images": 6, "classes": 20, "list": "trainval07"}
    assert card["solver"]["lr_of_batch"] == pytest.approx(0.02 * 2 / 16)
    assert card["frozen"] == "stem, conv2, with their batch norms in evaluation mode"
    assert "not synchronised: each of 2 CPU workers" in card["normalisation"]
    assert card["trials"] == 2
    assert {"torch", "torchvision"} <= card["versions"].keys()
    said = report(card)
    assert said is not None
    for phrase in (
        "6 training images instead of 16,551",
        "resnet18 instead of resnet50",
        "batch norm over each worker's own images instead of the whole batch",
        "4 regions instead of 512",
        "5 proposals instead of 1,000",
        "there is a box regression for the background too, which nothing trains",
    ):
        assert phrase in said


def test_the_card_is_of_the_workers_that_trained(score: Artifact, store: Store, devkit: Path) -> None:
    """Both trials are done already, the first with two workers; the cluster that ends the run has one."""
    alone = Store(store.root, machine=replace(store.machine, workers=1))
    settings = TINY.model_copy(update={"seed": 7})
    for trial, workers in zip(trials(alone, voc(devkit), settings), (2, 1), strict=True):
        work = Workspace(alone.root, alone.plan(trial).folder.prefix)
        work.scratch.write_json("history.json", [{"step": 2, "loss": 1.0, "workers": workers}])
        for start in (0, 16):
            found = score.read_npy("detections-1.npy")
            work.scratch.write_npy(f"found-{start:06d}.npy", found[found[:, 0] // 16 == start // 16])
        alone.get(trial)
    card = alone.get(stage(alone, voc(devkit), settings)).read_json("protocol.json")
    assert card["solver"]["workers"] == [2, 1]
    assert card["solver"]["norm_statistics"] == PARTLY
    assert "each of 2, then 1 CPU workers" in card["normalisation"]


def test_pictures(score: Artifact) -> None:
    assert score.info["figures"] == ["pictures-01.png"]
    assert score.read_bytes("pictures-01.png")[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_figure_is_drawn_again_from_what_is_kept(score: Artifact) -> None:
    figure = detections_figure(score)
    boxes = sum(len(axes.patches) for axes in figure.axes)
    _, annotations = names_and_annotations(score.stage.images, "test")
    assert boxes >= sum(len(one["boxes"]) for one in annotations[:16]) > 0


def test_pictures_reach_mlflow(score: Artifact, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    from pipelines.tracking import Tracking

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracking = Tracking(uri, "detection", {}, {})
    assert isinstance(score.stage, DetectionScore)
    tracking.on_done(score.stage, score, True, 0.0)
    client = MlflowClient(uri)
    (experiment,) = (e for e in client.search_experiments() if e.name == "detection")
    runs = client.search_runs([experiment.experiment_id], "tags.model = 'random'")
    assert [file.path for file in client.list_artifacts(runs[0].info.run_id, "detection")] == [
        "detection/pictures-01.png"
    ]
    (kept,) = (tmp_path / "mlflow-artifacts").rglob("pictures-01.png")
    assert kept.read_bytes() == score.read_bytes("pictures-01.png")


def test_it_is_made_once_and_anew_for_other_settings(score: Artifact, store: Store, devkit: Path) -> None:
    assert score.exists()
    before = len(store.events)
    assert store.get(stage(store, voc(devkit))).key == score.key
    assert [event.cached for event in store.events[before:]] == [True]
    assert not (Path(store.root) / "scratch" / score.ref).exists()
    assert not list((Path(store.root) / "scratch").glob("detection-trial/*"))
    elsewhere = TINY.model_copy(update={"path": "elsewhere"})
    assert store.plan(stage(store, voc(devkit), elsewhere)).key == score.key
    for change in ({"steps": 3}, {"seed": 1}, {"trials": 1}, {"freeze": 1}):
        assert store.plan(stage(store, voc(devkit), TINY.model_copy(update=change))).key != score.key


def test_pictures_and_more_trials_train_no_detector_again(store: Store, devkit: Path) -> None:
    def keys(**change: Any) -> list[str]:
        return [store.plan(t).key for t in trials(store, voc(devkit), TINY.model_copy(update=change))]

    first, second = keys()
    assert first != second
    assert keys(pictures=16) == [first, second]
    assert keys(trials=3)[:2] == [first, second]
    assert keys(seed=TINY.seed + 1)[0] == second  # what a trial is comes from its seed
    assert {first, second}.isdisjoint(keys(steps=3) + keys(test_size=48))


def test_one_trial_has_no_deviation() -> None:
    from evaluation.score import Score

    made = over_trials([Score({"ap50": 40.0}, {"classes": {}})], [[]])
    assert made.metrics == {"ap50": 40.0}


def refused(store: Store, data: Data, settings: Detection = TINY, net: Net = NET) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        trials(store, data, settings, net)[0].check()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_used_is_refused_before_anything_is_computed(store: Store, devkit: Path) -> None:
    assert "arch=wrn-10-1: detection by torchvision has resnet50 and resnet18" in refused(
        store, voc(devkit), net=Net(arch="wrn-10-1")
    )
    assert "data.kind=scenes: has no boxes" in refused(store, Data(train=20, test=10, storage="encoded"))
    assert "data.storage=raw: detection needs whole images" in refused(store, voc(devkit, storage="raw"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<xmax>", "<xmax>9", r"000001.jpg: the box .* leaves the image of 80x60 pixels"),
        ("<xmin>", "<xmin>9", r"000001.jpg: the box .* is empty"),
        ("<object>\n\t\t<name>", "<object><name>x", r"000001.jpg: class 'x.*' of an object is not among"),
    ],
)
def test_bad_boxes(store: Store, tmp_path: Path, old: str, new: str, said: str) -> None:
    root = write_vocdevkit(tmp_path, trainval=6, test=20, seed=3, height=60, width=80)
    xml = root / "Annotations/000001.xml"
    xml.write_text(xml.read_text().replace(old, new, 1))
    assert re.search(said, refused(store, voc(tmp_path)))


def test_difficult_objects_only(store: Store, tmp_path: Path) -> None:
    root = write_vocdevkit(tmp_path, trainval=6, test=20, seed=3, height=60, width=80)
    for xml in (root / "Annotations").glob("*.xml"):
        parts = xml.read_text().split("<object>")
        xml.write_text(
            "<object>".join(p.replace("<difficult>0", "<difficult>1") if "_arch<" in p else p for p in parts)
        )
    said = refused(store, voc(tmp_path))
    assert "_arch are difficult, which leaves nothing to be found" in said
    assert "_tree" not in said


def test_no_objects_at_all(store: Store, tmp_path: Path) -> None:
    root = write_vocdevkit(tmp_path, trainval=3, test=2, seed=3, height=60, width=80)
    for xml in (root / "Annotations").glob("*.xml"):
        head, *_ = xml.read_text().split("\t<object>")
        xml.write_text(head + "</annotation>\n")
    assert "the train images have no objects that count" in refused(store, voc(tmp_path))


def test_too_many_annotations_missing(store: Store, tmp_path: Path) -> None:
    root = write_vocdevkit(tmp_path, trainval=6, test=20, seed=3, height=60, width=80)
    (root / "Annotations/000003.xml").unlink()
    file = "VOC2007/JPEGImages/000003.jpg (its annotation: cannot be read: No such file or directory)"
    assert f"1 of 6 train images cannot be read: {file}; mend" in refused(store, voc(tmp_path))
    assert refused(store, voc(tmp_path, max_bad_fraction=0.1)).startswith("data.max_bad_fraction=0.1: 1 of 6 train")
    trials(store, voc(tmp_path, max_bad_fraction=0.2))[0].check()


@pytest.mark.parametrize("split", ["train", "test"])
def test_one_class_only(store: Store, tmp_path: Path, split: str) -> None:
    root = write_vocdevkit(tmp_path, trainval=6, test=20, seed=3, height=60, width=80)
    kept = [f"{number:06d}" for number in (range(1, 7) if split == "train" else range(7, 27))]
    for xml in (root / "Annotations").glob("*.xml"):
        if xml.stem in kept:
            xml.write_text(re.sub(r"(<object>\s*<name>)\w+", rf"\1{NAMES[0]}", xml.read_text()))
    assert f"all objects of the {split} images are of one class, {NAMES[0]}; use images of two" in refused(
        store, voc(tmp_path)
    )
