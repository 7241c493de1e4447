"""The programs of examples/, as they stand there."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from conftest import ROOT, environment
from PIL import Image

from pipelines.records import Record, write_record


def run(example: str, *arguments: str | Path) -> str:
    command = [sys.executable, str(ROOT / "examples" / example), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment(), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_words_of_my_images(smoke: dict[str, Any], tmp_path: Path) -> None:
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 255, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"mine-{i}.jpg")
    lines = run("words_of_my_images.py", "--store", smoke["store"], tmp_path).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["mine-0.jpg", "mine-1.jpg"]
    assert all("of 16 words; most often" in line for line in lines)


def test_words_need_a_student_and_images(smoke: dict[str, Any], tmp_path: Path) -> None:
    """Mistakes are answered in one line; of a store whose last run judged other networks, the last student is taken."""
    images, empty, store = tmp_path / "images", tmp_path / "empty", tmp_path / "store"
    images.mkdir()
    empty.mkdir()
    shutil.copytree(smoke["store"], store, ignore=shutil.ignore_patterns("pages", "mlflow*"))
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(images / "a.png")
    random = {"name": "random", "metrics": {}, "protocol": {}, "artifacts": {"backbone": "random-net/none"}}
    write_record(str(store), Record("later", {"seed": 0}, [random], 1.0, finished="2999-01-01T00:00:00+00:00"))
    assert "a.png: " in run("words_of_my_images.py", "--store", store, images)
    for said, *arguments in (
        ("holds no finished run that trained a student", "--store", empty, images),
        ("holds no JPEG or PNG files", "--store", store, empty),
        ("is no folder", "--store", store, tmp_path / "none"),
    ):
        command = [sys.executable, str(ROOT / "examples/words_of_my_images.py"), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment(), cwd=ROOT)
        assert (done.returncode, done.stderr.count("error: ")) == (2, 1)
        assert said in done.stderr


def test_a_new_task_learns() -> None:
    lines = run("new_task.py").splitlines()
    assert len(lines) == 4
    first, last = (float(line.rpartition(" ")[2]) for line in (lines[0], lines[-1]))
    assert last > max(0.55, first)


def test_evaluate_a_timm_model(tmp_path: Path) -> None:
    """From a file, as timm's published weights are a download."""
    net = timm.create_model("resnet18", pretrained=False)
    torch.save(net.state_dict(), tmp_path / "mine.pth")
    lines = run("evaluate_a_timm_model.py", "--weights", tmp_path / "mine.pth", "--store", tmp_path / "store")
    scores = dict(line.split()[1:] for line in lines.splitlines())
    assert {"linear/pool5/top1", "knn/top1_20"} <= set(scores)
    assert all(0 <= float(score) <= 100 for score in scores.values())
    assert lines.startswith("mine  ")
