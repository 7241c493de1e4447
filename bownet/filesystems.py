"""Where files lie: a local path or a URI goes in, the file system and the path inside it come out."""

from __future__ import annotations

import os
from functools import lru_cache
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from bownet.masking import without_password


def is_local(uri: str) -> bool:
    """Whether it is a path on this machine, `file://` included."""
    return "://" not in uri or uri.startswith("file://")


def local_path(uri: str) -> str:
    """The absolute path of a local place."""
    text = unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
    return os.path.abspath(os.path.expanduser(text))


@lru_cache(maxsize=16)
def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """pyarrow's file system for s3://, gs://, hdfs:// and local paths, else fsspec's; and the path inside it."""
    if is_local(uri):
        return fs.LocalFileSystem(), local_path(uri)
    try:
        system, path = fs.FileSystem.from_uri(uri)
        return system, path.rstrip("/")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unknown:
        from fsspec.core import url_to_fs  # only for schemes that pyarrow does not know

        try:
            system, path = url_to_fs(uri)
        except (ValueError, ImportError) as error:
            raise ValueError(
                without_password(f"{uri}: neither pyarrow ({unknown}) nor fsspec ({error}) opens it; use another")
            ) from error
        return fs.PyFileSystem(fs.FSSpecHandler(system)), path.rstrip("/")
