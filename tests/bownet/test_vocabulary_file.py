"""A vocabulary as a file: what goes in comes out, equal ones are equal files, and other files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Generator, Tensor

from bownet.words.pca import fit_pca
from bownet.words.vocabulary_file import Vocabulary


def features(n: int, c: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(n, c, generator=Generator().manual_seed(seed))


def plain() -> Vocabulary:
    return Vocabulary(features(9), "teacher-1a2b", "block3", statistics={"vectors": 500, "inertia": [2.0, 1.5]})


def with_pca() -> Vocabulary:
    pca = fit_pca(features(100), 3, whiten=True)
    return Vocabulary(pca.transform(features(9, seed=1)), "teacher-1a2b", "block1", pca)


def test_words_by_hand() -> None:
    vocabulary = Vocabulary(torch.tensor([[0.0, 0.0], [4.0, 4.0]]), "t", "conv5")
    assert vocabulary.assign(torch.tensor([[1.0, 1.0], [3.0, 3.0], [5.0, -2.0]])).tolist() == [0, 1, 0]
    map_NCHW = torch.tensor([[[[0.0, 5.0, 3.0]], [[0.0, 3.0, 0.0]]]])  # vectors (0, 0), (5, 3), (3, 0)
    assert vocabulary.assign(map_NCHW).tolist() == [[[0, 1, 0]]]
    assert (vocabulary.size, vocabulary.channels) == (2, 2)


@pytest.mark.parametrize("vocabulary", [plain(), with_pca()], ids=["plain", "pca"])
def test_maps_and_vectors_agree(vocabulary: Vocabulary) -> None:
    map_NCHW = features(4 * 5 * 3).view(4, 5, 3, 6).permute(0, 3, 1, 2)
    assert vocabulary.channels == 6
    words = vocabulary.assign(map_NCHW)
    assert words.shape == (4, 5, 3)
    assert torch.equal(words.flatten(), vocabulary.assign(features(4 * 5 * 3)))
    assert torch.equal(vocabulary.assign(map_NCHW.contiguous(memory_format=torch.channels_last)), words)


@pytest.mark.parametrize("vocabulary", [plain(), with_pca()], ids=["plain", "pca"])
def test_a_vocabulary_survives_its_file(vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.safetensors"
    vocabulary.save(path)
    loaded = Vocabulary.load(path)
    x = features(200, seed=5)
    assert torch.equal(loaded.assign(x), vocabulary.assign(x))
    assert (loaded.teacher, loaded.tap, loaded.size) == (vocabulary.teacher, vocabulary.tap, 9)
    assert loaded.statistics == vocabulary.statistics
    assert torch.equal(loaded.centroids_KC, vocabulary.centroids_KC)
    if vocabulary.pca:
        assert loaded.pca
        assert loaded.pca.whiten
        assert loaded.pca.explained == vocabulary.pca.explained
        assert torch.equal(loaded.pca.variance_C, vocabulary.pca.variance_C)


def test_equal_vocabularies_are_equal_files(tmp_path: Path) -> None:
    for i in range(8):
        with_pca().save(tmp_path / str(i))
    assert len({(tmp_path / str(i)).read_bytes() for i in range(8)}) == 1


def test_wrong_features_are_an_error_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"features have 5 channels, words of block3 take 6"):
        plain().assign(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"features have 3 channels, words of block1 take 6"):
        with_pca().assign(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"features \(6,\): expected \[N, C\] or \[N, C, h, w\]"):
        plain().assign(torch.zeros(6))
    bad = torch.zeros(20, 6, 2, 2)
    bad[3, 1, 0, 1], bad[7, 5, 1, 1] = torch.nan, -torch.inf
    with pytest.raises(ValueError, match=r"features: 2 of 20 are not finite \(numbers 3, 7\)"):
        plain().assign(bad)


def test_wrong_centroids_are_an_error_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"centroids \(3,\): expected \[words, channels\] with 1..65536 words"):
        Vocabulary(torch.zeros(3), "t", "conv5")
    with pytest.raises(ValueError, match=r"centroids \(65537, 1\): expected"):
        Vocabulary(torch.zeros(65537, 1), "t", "conv5")
    with pytest.raises(ValueError, match=r"centroids \(2, 2\): some are not finite"):
        Vocabulary(torch.full((2, 2), torch.nan), "t", "conv5")
    with pytest.raises(ValueError, match=r"centroids \(2, 2\): the PCA gives 3 components"):
        Vocabulary(torch.zeros(2, 2), "t", "conv5", with_pca().pca)


def test_another_teacher_or_tap_is_refused() -> None:
    plain().require_teacher("teacher-1a2b", "block3")
    for teacher, tap in (("teacher-ffff", "block3"), ("teacher-1a2b", "block2")):
        with pytest.raises(ValueError, match=f"block3 of teacher teacher-1a2b, not of {tap} of {teacher}"):
            plain().require_teacher(teacher, tap)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent: there is no such file"):
        Vocabulary.load(tmp_path / "absent")
    (tmp_path / "text").write_text("hello, this is no tensor at all")
    with pytest.raises(ValueError, match=r"text: not a vocabulary file \("):
        Vocabulary.load(tmp_path / "text")
    save_file({"centroids": torch.zeros(2, 2)}, tmp_path / "other")
    with pytest.raises(ValueError, match=r"other: not a vocabulary file, it names no vocabulary"):
        Vocabulary.load(tmp_path / "other")
    save_file({"centroids": torch.zeros(2, 2)}, tmp_path / "new", {"bownet.vocabulary": '{"format": 2}'})
    with pytest.raises(ValueError, match=r"new: a vocabulary of format 2, this program reads 1"):
        Vocabulary.load(tmp_path / "new")
    about = '{"format": 1, "teacher": "t", "tap": "x", "statistics": {}}'
    save_file({"centroids": torch.full((2, 2), torch.inf)}, tmp_path / "bad", {"bownet.vocabulary": about})
    with pytest.raises(ValueError, match=r"bad: centroids \(2, 2\): some are not finite"):
        Vocabulary.load(tmp_path / "bad")
