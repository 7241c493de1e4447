"""What evaluate.py refuses of the evaluators' images and settings: one line, exit code 2, and nothing is built.

The whole program runs, in this process: it refuses while it plans, before it would start Ray.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from bownet.config import Data, Evaluation
from bownet.images.scenes_voc import NAMES, write_vocdevkit
from pipelines.evaluate import evaluation, main
from pipelines.plan import Plan
from pipelines.store import Store

Spoil = Callable[[Path], None]
SCENES = ["--data.train", "60", "--data.test", "40", "--data.novel-per-class", "6", "--data.image-size", "16"]
OTHER_SCENES = ["--transfer.data.kind", "scenes", "--transfer.data.path", "None", "--transfer.data.image-size", "16"]
SVM = ["--evaluators", "voc07_svm", "--weights", "random:wrn-10-1", "--voc07-svm.path", "{root}"]
DETECTION = ["--evaluators", "detection", "--weights", "random:resnet18", "--detection.path", "{root}"]
DETECTION += ["--detection.train", "trainval07"]
OTHER, ONLINE = {"train": 30, "test": 12, "image_size": 16}, {"features": "online", "batch": 2}


@pytest.fixture
def refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the program; gives what follows `error: `."""

    def run(*arguments: str) -> str:
        store = tmp_path / "store"
        given = [argument.format(root=tmp_path) for argument in arguments]
        monkeypatch.setattr("sys.argv", ["evaluate.py", *given, "--store", str(store)])
        assert main() == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("error: ")
        assert not store.exists()
        return line.removeprefix("error: ").replace(str(tmp_path), "ROOT")

    return run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--evaluators", "fewshot", "--fewshot.shots", "1", "5"],
            "evaluators=fewshot: fewshot.shots=(1, 5): 5 shots and 15 queries need 20 images of each class, the",
        ),
        (["--evaluators", "linear", "--linear.taps", "conv9"], "linear.taps='conv9': wrn-10-1 has block1, block2"),
        (
            ["--evaluators", "transfer", "--transfer.linear.taps", "conv5", *OTHER_SCENES],
            "transfer.linear.taps='conv5': wrn-10-1 has block1, block2",
        ),
        (["--evaluators", "knn"], "evaluators=knn: knn.neighbours=200: there are 60 training images, use 1..60"),
        (["--evaluators", "retrieval"], "evaluators=retrieval: retrieval.ranks=100: there are 60 images to find"),
        (["--fewshot.shots", "5", "5"], "fewshot.shots=(5, 5): 5 is named twice; name each once"),
        (["--knn.neighbours", "1", "20", "1"], "knn.neighbours=(1, 20, 1): 1 is named twice; name each once"),
        (["--retrieval.ranks", "3", "3"], "retrieval.ranks=(3, 3): 3 is named twice; name each once"),
        (["--finetune.fractions", "0.1", "0.1"], "finetune.fractions=(0.1, 0.1): 0.1 is named twice; name each once"),
        (["--fewshot.shots"], "fewshot.shots=(): is empty; name one number or more"),
        (["--knn.neighbours"], "knn.neighbours=(): is empty; name one number or more"),
        (["--retrieval.ranks"], "retrieval.ranks=(): is empty; name one number or more"),
        (["--finetune.fractions"], "finetune.fractions=(): is empty; name one number or more"),
        (["--detection.train-sizes"], "detection.train_sizes=(): is empty; name one number or more"),
        (
            ["--detection.steps", "900", "--detection.drops"],
            "detection.warmup=1000: the rate would never be reached in steps=900; use fewer, 0 for none",
        ),
        (["--linear.crop-area", "0", "1"], "linear.crop_area=(0.0, 1.0): needs 0 < low <= high <= 1"),
        (["--finetune.crop-area", "0.9", "0.1"], "finetune.crop_area=(0.9, 0.1): needs 0 < low <= high <= 1"),
        (
            ["--transfer.linear.crop-area", "0.9", "0.1"],
            "transfer.linear.crop_area=(0.9, 0.1): needs 0 < low <= high <= 1",
        ),
        (["--fewshot.seed", "1000000000000000000"], "fewshot.seed=1000000000000000000: use 0..2147483647"),
    ],
)
def test_settings_that_images_or_network_do_not_allow(
    refusal: Callable[..., str], arguments: list[str], said: str
) -> None:
    assert refusal("--weights", "random:wrn-10-1", *SCENES, *arguments).startswith(said)


def test_a_checkpoint_of_another_architecture(refusal: Callable[..., str], tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet18(weights=None).state_dict(), tmp_path / "theirs.pth")
    weights = ["--weights", "{root}/theirs.pth", "--evaluators", "linear", "--arch"]
    said = refusal(*weights, "resnet50", *SCENES)
    assert said.startswith("weights=ROOT/theirs.pth: layer1.0.conv1.weight has shape (64, 64, 3, 3), a resnet50 needs")
    said = refusal("--weights", "random:wrn-10-1", *DETECTION[:2], "--detection.path", "scenes")
    assert said == "arch=wrn-10-1: detection by torchvision has resnet50 and resnet18; use one of them"


def test_a_split_of_one_class_and_one_without_labels(refusal: Callable[..., str], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for folder in ("labelled/train/a", "labelled/train/b", "labelled/test/a", "plain"):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(tmp_path / folder / f"{i}.png")
    folders = ["--weights", "random:wrn-10-1", "--data.kind", "folder", "--data.image-size", "16", "--data.path"]
    for evaluator in ("linear", "knn", "retrieval", "finetune"):
        of_one = refusal(*folders, "{root}/labelled", "--evaluators", evaluator)
        assert of_one.startswith(f"evaluators={evaluator}: the test images are all of one class; use other images")
        unlabelled = refusal(*folders, "{root}/plain", "--evaluators", evaluator)
        assert unlabelled.startswith(f"evaluators={evaluator}: the train images have no class labels; use other")


def no_annotations(year: Path) -> None:
    for file in (year / "Annotations").glob("*.xml"):
        file.unlink()


def empty_test(year: Path) -> None:
    (year / "ImageSets/Main/test.txt").write_text("")


def box_outside(year: Path) -> None:
    file = year / "Annotations/000002.xml"
    file.write_text(re.sub(r"<xmax>\d+", "<xmax>82", file.read_text(), count=1))


def one_class(year: Path) -> None:
    for file in (year / "Annotations").glob("*.xml"):
        file.write_text(re.sub(r"(<object>\s*<name>)\w+", rf"\1{NAMES[0]}", file.read_text()))


def all_difficult(year: Path) -> None:
    """Of one class, in the test."""
    for name in (year / "ImageSets/Main/test.txt").read_text().split():
        file = year / f"Annotations/{name}.xml"
        parts = file.read_text().split("<object>")
        hard = [p.replace("<difficult>0", "<difficult>1") if f"<name>{NAMES[1]}<" in p else p for p in parts]
        file.write_text("<object>".join(hard))


@pytest.fixture(scope="module")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("voc")
    write_vocdevkit(root, trainval=120, test=60, seed=1, height=60, width=80)
    return root / "VOCdevkit"


@pytest.mark.parametrize(
    ("spoil", "by_svm", "by_detection"),
    [
        (no_annotations, "120 of 120 train images have no annotation", "120 of 120 train images cannot be read"),
        (empty_test, "test.txt lists no images; use a whole one", "test.txt lists no images; use a whole one"),
        (box_outside, "is outside of the image of 80x60 pixels", "leaves the image of 80x60 pixels by more than 1"),
        (one_class, "training images: voc07_svm.folds=3 needs at least 3", f"are of one class, {NAMES[0]}; use images"),
        (
            all_difficult,
            f"no test image has a {NAMES[1]} that is not difficult",
            f"all test objects of {NAMES[1]} are difficult, which leaves nothing to be found",
        ),
    ],
)
def test_voc_that_is_no_use(
    refusal: Callable[..., str], devkit: Path, tmp_path: Path, spoil: Spoil, by_svm: str, by_detection: str
) -> None:
    shutil.copytree(devkit, tmp_path / "VOCdevkit")
    spoil(tmp_path / "VOCdevkit/VOC2007")
    assert by_svm in refusal(*SVM)
    assert by_detection in refusal(*DETECTION)


@pytest.mark.parametrize(
    ("evaluator", "settings", "workers", "said"),
    [
        ("detection", {"path": "scenes", "batch": 2}, 3, "detection.batch=2: too few images for 3 workers"),
        ("linear", {"features": "online", "batch": 2}, 3, "linear.batch=2: 60 images give batches of 2, too few for 3"),
        ("transfer", {"data": OTHER, "linear": ONLINE}, 3, "transfer.linear.batch=2: 30 images give batches of 2, too"),
        # of 60 scenes a hundredth is an image of each of 12 classes, in steps of 6 and 6
        ("finetune", {"fractions": (0.01,), "batch": 8}, 7, "finetune.batch=8: 12 images give batches of 6, too few"),
    ],
)
def test_batches_are_too_small_for_the_workers(
    tmp_path: Path, evaluator: str, settings: dict[str, Any], workers: int, said: str
) -> None:
    """As the program asks, before it builds anything, when the cluster has told how many there are."""
    data = Data(train=60, test=40, image_size=16)
    exp = Evaluation.model_validate(
        {"weights": ["random:resnet18"], "data": data, "evaluators": [evaluator], evaluator: settings}
    )
    plan = Plan(Store(tmp_path))
    evaluation(exp, plan)
    plan.check_workers(2, gpu=False)
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        plan.check_workers(workers, gpu=False)
