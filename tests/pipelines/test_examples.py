"""The programs of examples/, as they stand there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, environment
from PIL import Image


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


def test_a_new_task_learns() -> None:
    lines = run("new_task.py").splitlines()
    assert len(lines) == 4
    first, last = (float(line.rpartition(" ")[2]) for line in (lines[0], lines[-1]))
    assert last > max(0.55, first)


@pytest.mark.slow
def test_evaluate_a_timm_model(tmp_path: Path) -> None:
    """`timm:` needs a download; a new network of the same kind does not."""
    said = run("evaluate_a_timm_model.py", "--store", tmp_path / "store")
    assert "linear/pool5/top1" in said
    assert "knn/top1_20" in said
