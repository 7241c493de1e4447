"""What notebooks import: words of files and of arrays are the same, and mistakes are told."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import bownet
from bownet import Vocabulary, load_backbone, visual_words
from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import save_backbone


def test_words_of_arrays_and_of_files(tmp_path: Path) -> None:
    net = Net(arch="wrn-10-1")
    save_backbone(build_backbone(net, 0), net, tmp_path / "backbone.safetensors", {})
    Vocabulary(torch.randn(9, 64, generator=torch.Generator().manual_seed(0)), "key", "block3").save(tmp_path / "v")
    teacher, vocabulary = load_backbone(str(tmp_path / "backbone.safetensors")), Vocabulary.load(tmp_path / "v")
    pixels = np.random.default_rng(0).integers(0, 255, (3, 37, 37, 3), np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    files = visual_words(paths, teacher, vocabulary, size=37)
    arrays = visual_words(pixels, teacher, vocabulary)  # small images are seen whole, as the pipeline stores them
    assert files.shape == (3, 10, 10)
    assert len(np.unique(files)) > 1
    assert (files == arrays).all()
    centre = visual_words(pixels[:, 2:34, 2:34], teacher, vocabulary)  # 37 is 8/7 of 32: nothing is scaled
    assert (visual_words(paths, teacher, vocabulary, size=32, storage="encoded") == centre).all()
    with pytest.raises(ValueError, match="size=None: files are cut"):
        visual_words([tmp_path / "0.png"], teacher, vocabulary)
    with pytest.raises(ValueError, match=r"expected uint8 \[N, H, W, 3\]"):
        visual_words(pixels.astype(np.float32), teacher, vocabulary)
    with pytest.raises(ValueError, match="No such file"):
        visual_words([tmp_path / "9.png"], teacher, vocabulary, size=32)
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match="no image that can be read"):
        visual_words([tmp_path / "text.png"], teacher, vocabulary, size=32)


def test_words_of_another_teacher_are_refused(tmp_path: Path) -> None:
    """A student's file beside the vocabulary of its teacher: both know their keys."""
    net = Net(arch="wrn-10-1")
    vocabulary = Vocabulary(torch.randn(9, 64, generator=torch.Generator().manual_seed(0)), "aaaa", "block3")
    pixels = np.zeros((1, 16, 16, 3), np.uint8)
    for name, key in (("teacher", "aaaa"), ("student", "bbbb")):
        save_backbone(build_backbone(net, 0), net, tmp_path / name, {"key": key})
    assert visual_words(pixels, load_backbone(tmp_path / "teacher"), vocabulary).shape == (1, 4, 4)
    with pytest.raises(ValueError, match="made of block3 of teacher aaaa, not of block3 of bbbb; use that teacher"):
        visual_words(pixels, load_backbone(tmp_path / "student"), vocabulary)


def test_nothing_else_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bownet.nothing  # type: ignore[attr-defined]
