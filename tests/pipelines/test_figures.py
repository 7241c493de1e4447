"""figures.py as people run it, on the store of a real run: every kind as a picture, and what it refuses."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment
from PIL import Image

from pipelines import figures

PROGRAM = [sys.executable, str(ROOT / "pipelines" / "figures.py")]


def draw(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["figures.py", *map(str, arguments)])
    return figures.main()


@pytest.mark.parametrize(
    "kind", ["words", "word-maps", "predictions", "tsne", "neighbours", "confusion", "training", "fewshot"]
)
def test_every_kind(kind: str, smoke: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "figure.png"
    assert draw(monkeypatch, kind, "--store", smoke["store"], "--out", out) == 0
    with Image.open(out) as picture:
        assert min(picture.size) > 300


def test_a_network_by_its_key(
    smoke: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rotnet = next(row for row in smoke["report"]["rows"] if row["name"] == "RotNet")
    key, out = rotnet["artifacts"]["backbone"].rpartition("/")[2][:8], tmp_path / "figure.svg"
    assert draw(monkeypatch, "training", "--key", key, "--store", smoke["store"], "--out", out) == 0
    assert "training of RotNet" in capsys.readouterr().out
    assert "<svg" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fewshots"], "kind='fewshots': unknown, did you mean fewshot?"),
        (["tsne", "--key", "zzz"], "key='zzz': no finished run"),
        (["tsne", "--out", "a.gif"], "out=a.gif: must end with one of png, svg, pdf"),
        (["tsne", "--out", "nowhere/a.png"], "name a file in a folder that exists"),
        (["rounds"], "rounds are drawn of a run that has judged two or more"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    arguments: list[str],
    said: str,
    smoke: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert draw(monkeypatch, *arguments, "--store", smoke["store"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_network_without_words(smoke: dict[str, Any]) -> None:
    key = smoke["report"]["rows"][0]["artifacts"]["backbone"].rpartition("/")[2]
    command = [*PROGRAM, "words", "--key", key, "--store", str(smoke["store"])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 2
    assert done.stderr == "error: kind=words: random predicts no words; name a student\n"
