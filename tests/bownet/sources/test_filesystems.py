"""Local paths and URIs become a file system and a path in it."""

from pathlib import Path

import fsspec
import pytest
from pyarrow import fs

from bownet.filesystems import is_local, local_path, open_filesystem


def test_local_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert local_path("a/../b") == str(tmp_path / "b")
    assert local_path("~/x") == "/home/someone/x"
    assert local_path("file:///a%20b/c") == "/a b/c"
    assert is_local("file:///a")
    assert not is_local("s3://bucket/a")
    (tmp_path / "b").write_bytes(b"12")
    system, path = open_filesystem(f"file://{tmp_path}/b")
    assert isinstance(system, fs.LocalFileSystem)
    assert system.get_file_info(path).size == 2


def test_fsspec_opens_what_pyarrow_does_not_know() -> None:
    fsspec.filesystem("memory").pipe("/place/file", b"123")
    system, path = open_filesystem("memory://place/")
    assert system.get_file_info(f"{path}/file").size == 3


def test_an_unknown_scheme_is_explained() -> None:
    with pytest.raises(ValueError, match=r"nope://x: neither pyarrow .* nor fsspec .* opens it; use another"):
        open_filesystem("nope://x")
