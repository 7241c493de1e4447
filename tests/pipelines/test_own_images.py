"""A user's own folder, through the whole pipeline: with classes, without, and as files that are decoded on the fly."""

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from conftest import run_full
from PIL import Image

from bownet.images import scenes

SMALL = ["--linear.epochs", "3", "--fewshot.episodes", "20", "--student.optimiser.epochs", "1"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of mixed sizes in five folders, one of which holds a file that is no image."""
    root = tmp_path_factory.mktemp("photos")
    category = scenes.labels(200, scenes.BASE[:5])
    rng = np.random.default_rng(0)
    for i, (c, pixels) in enumerate(zip(category, scenes.draw_labelled(category, 64, 0, 0), strict=True)):
        folder = root / str(scenes.CATEGORIES[c]).replace(" ", "_")
        folder.mkdir(exist_ok=True)
        size = (int(rng.integers(40, 120)), int(rng.integers(40, 120)))
        Image.fromarray(pixels).resize(size).save(folder / f"{i:03d}.jpg", quality=90)
    (folder / "broken.jpg").write_bytes(b"not an image")
    return root


def finished(tmp_path: Path, *arguments: str | Path) -> tuple[dict[str, Any], str]:
    report = tmp_path / "report.json"
    done = run_full("smoke", "--store", tmp_path / "store", "--json", report, *SMALL, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text()), done.stdout


@pytest.mark.slow
def test_a_folder_with_classes(photos: Path, tmp_path: Path) -> None:
    folder = ["--data.kind", "folder", "--data.path", str(photos), "--teacher.kind", "random"]
    report, printed = finished(tmp_path, *folder, "--fewshot.queries", "2")
    assert [row["name"] for row in report["rows"]] == ["random", "BoWNet"]
    assert all({"linear/top1", "fewshot/5shot"} <= row["metrics"].keys() for row in report["rows"])
    assert report["rows"][0]["protocol"]["fewshot"]["data"]["test"]["split"] == "test"
    assert "1 of 201 images cannot be read" in printed
    assert "5 classes" in printed
    client = mlflow.MlflowClient(report["mlflow"]["tracking_uri"])
    logged = client.get_run(report["mlflow"]["run_id"]).data.metrics
    assert (logged["images/train"] + logged["images/test"], logged["images/bad"]) == (200, 1)
    assert logged["images/height_max"] > logged["images/height_min"]
    counts = client.get_metric_history(report["mlflow"]["run_id"], "images/train_class_count")
    assert sum(point.value for point in counts) == logged["images/train"]


@pytest.mark.slow
def test_files_without_labels_stream_through_two_workers(photos: Path, tmp_path: Path) -> None:
    """No labels: pretraining runs, evaluators say before it that they are left out. Files are decoded every epoch."""
    folder = ["--data.kind", "folder", "--data.path", str(photos), "--data.labels", "none"]
    shape = ["--data.storage", "encoded", "--data.image-size", "32", "--resources.workers", "2"]
    shape += ["--teacher.kind", "random"]
    report, printed = finished(tmp_path, *folder, *shape)
    assert printed.index("linear is left out: the train images have no class labels") < printed.index("[1/")
    assert "few-shot is left out" in printed
    assert "No score" in printed
    assert [stage["name"] for stage in report["stages"]] == [
        "images",
        "random-net",
        "vocabulary",
        "words",
        "student",
    ]
    student = report["stages"][-1]["key"]
    manifest = json.loads((tmp_path / "store" / "artifacts" / "student" / student / "manifest.json").read_text())
    assert manifest["info"]["streamed"] is True
    assert manifest["info"]["workers"] == 2


def test_the_plan_tells_what_is_there_and_what_will_not_work(photos: Path, tmp_path: Path) -> None:
    done = run_full("demo", "--store", tmp_path / "s", "--data.kind", "folder", "--data.path", photos, "--dry-run")
    assert done.returncode == 0, done.stderr
    for expected in (
        "data: 161 train, 40 test",
        "5 classes",
        "few-shot is left out: fewshot.shots=(1, 5, 10, 50): 50 shots and 15 queries need 65 images of each class",
        "disk: about",
        "free",
        "memory: about",
        "available on this machine",
    ):
        assert expected in done.stdout, expected
    assert not (tmp_path / "s").exists()


def test_too_few_images_for_the_vocabulary_are_refused(photos: Path, tmp_path: Path) -> None:
    small = ["--data.train", "5", "--vocabulary.size", "500"]
    done = run_full("demo", "--store", tmp_path / "s", "--data.kind", "folder", "--data.path", photos, *small)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: vocabulary.size=500: 5 images give")
