"""What an intruder could try with files that people pass around; SECURITY.md has the promises."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import ResNet18_Weights

from bownet.config import Data
from bownet.images.sources import open_source
from bownet.images.sources.voc import parse_annotation
from bownet.nets.checkpoint import load_backbone
from bownet.words.vocabulary_file import Vocabulary
from pipelines.stages.library_net import _downloaded, library_net
from pipelines.stages.training import CHECKPOINT, last_checkpoint
from pipelines.store import Folder
from pipelines.store.artifacts import cache_folder


class Code:
    """Unpickled, it leaves a file behind."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


@pytest.fixture(autouse=True)
def nothing_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "ran").exists(), "a file has run code"


def evil() -> bytes:
    file = io.BytesIO()
    torch.save({"x": Code()}, file)
    return file.getvalue()


def test_the_trap_works(tmp_path: Path) -> None:
    torch.load(io.BytesIO(evil()), weights_only=False)
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()


def test_a_planted_checkpoint_of_a_training_runs_nothing(tmp_path: Path) -> None:
    scratch = Folder(str(tmp_path))
    scratch.write_bytes(CHECKPOINT, evil())
    with pytest.raises(ValueError, match=r"checkpoint\.pt: cannot be read \(Weights only load failed.*; delete it and"):
        last_checkpoint(scratch)


@pytest.mark.parametrize("load", [load_backbone, Vocabulary.load])
def test_weights_and_vocabularies_run_nothing(load: Any, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(evil())
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        load(tmp_path / "a.safetensors")


def test_a_planted_download_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision reads what lies in its cache under the right name, whatever its checksum."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    (cache / Path(ResNet18_Weights.IMAGENET1K_V1.url).name).write_bytes(evil())
    _downloaded.cache_clear()  # of other tests in this process
    with pytest.raises(ValueError, match=r"^weights=torchvision:.*: the downloaded file holds more than weights.*hub$"):
        library_net("torchvision", "resnet18")(model="resnet18").download()


def test_arrays_of_the_store_run_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([Code()], dtype=object), allow_pickle=True)
    for mmap in (True, False):
        with pytest.raises(ValueError, match=r"allow_pickle|Python objects"):
            Folder(str(tmp_path)).read_npy("a.npy", mmap=mmap)


@pytest.mark.parametrize(
    "head",
    [
        b'<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY d "&b;&b;&b;">]>',
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        b"<!doctype a>",
    ],
)
def test_annotations_define_nothing(head: bytes) -> None:
    with pytest.raises(ValueError, match="has a document type"):
        parse_annotation(head + b"<annotation/>")
    assert parse_annotation(b"<?xml version='1.0'?><!-- a --><annotation/>") == {"boxes": [], "classes": {}}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_annotations_hide_nothing_in_another_encoding(encoding: str) -> None:
    """The XML parser would read them, and find the document type."""
    xml = '<!DOCTYPE a [<!ENTITY b "cc">]><annotation><object><name>&b;</name></object></annotation>'
    assert ElementTree.fromstring(xml.encode("utf-16")).findtext("object/name") == "cc"
    with pytest.raises(ValueError, match="is in UTF-16"):
        parse_annotation(xml.encode(encoding))


def test_names_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    """Members are read where they are and never written to a disk; links are passed over."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("../../x.png", "/etc/x.png", "plain.png"):
            member = tarfile.TarInfo(name)
            member.size = len(picture.getvalue())
            tar.addfile(member, io.BytesIO(picture.getvalue()))
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    source = open_source(Data(kind="webdataset", path=str(tmp_path), test_fraction=0.3))
    names = [p.name for split in source.splits.values() for p in split.part(np.arange(len(split))).read()]
    assert not any("link" in name for name in names)
    assert sorted(tmp_path.rglob("*")) == before
    assert not (tmp_path.parents[1] / "x.png").exists()


def test_names_in_the_store_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.\."):
        Folder(str(tmp_path / "store")).write_bytes("../outside", b"")


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOWNET_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    os.chmod(tmp_path / "mine", 0o777)
    with pytest.raises(ValueError, match=r"BOWNET_CACHE=.*mine: others may write there"):
        cache_folder()
