"""Image files below a root, local or remote: names go in, encoded files come out. Shared by the readers of folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyarrow import fs

from bownet.filesystems import is_local, local_path, open_filesystem
from bownet.images.decode import BadImage
from bownet.images.sources.listing import Listing, Part, Picture, Rows
from bownet.images.sources.names import printable

MISSING = -1  # the size of a file that is not there


def read_file(root: str, name: str) -> bytes | BadImage:
    """A file's bytes, or why it cannot be read."""
    try:
        if is_local(root):
            with open(os.path.join(local_path(root), name), "rb") as file:
                return file.read()
        system, path = open_filesystem(root)
        with system.open_input_stream(f"{path}/{name}", compression=None) as stream:
            return bytes(stream.read())
    except OSError as error:
        return BadImage(f"cannot be read: {error.strerror or error}")


@dataclass(frozen=True)
class FilePart(Part):
    """Files below a root."""

    root: str
    names: list[str]

    def read(self) -> Iterator[Picture]:
        for name in self.names:
            yield Picture(printable(name), read_file(self.root, name))


@dataclass(frozen=True, eq=False)
class FileListing(Listing):
    """All files of a split."""

    root: str
    names: list[str]
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def part(self, rows: Rows) -> FilePart:
        return FilePart(self.root, [self.names[i] for i in rows])


def mean_size(listings: Sequence[FileListing]) -> int:
    """Mean bytes of the files that are there."""
    sizes = np.concatenate([listing.sizes for listing in listings])
    there = sizes[sizes != MISSING]
    return int(there.mean()) if len(there) else 0


def sizes_of(root: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Bytes of each named file; MISSING where there is none."""
    return np.fromiter((_size(os.path.join(root, name)) for name in names), np.int64, len(names))


def require_folder(path: str, wanted: str) -> str:
    """The local folder of a data set that is read from one, such as `images/ and train.csv`."""
    if not is_local(path):
        raise ValueError(f"data.path={path}: this kind of data is read from a local folder; copy or mount it")
    local = local_path(path)
    if not os.path.exists(local):
        raise ValueError(f"data.path={path}: does not exist; name the folder with {wanted}")
    if not os.path.isdir(local):
        raise ValueError(f"data.path={path}: is a file; name the folder with {wanted}")
    return local


def walk(path: str) -> tuple[list[str], NDArray[np.int64]]:
    """Name below `path` and size of every file, in order of name; hidden folders are left out."""
    found = sorted(_walk_local(require_folder(path, "the images")) if is_local(path) else _walk_remote(path))
    return [name for name, _ in found], np.array([size for _, size in found], np.int64)


def _walk_local(root: str) -> Iterator[tuple[str, int]]:
    status = os.stat(root)
    pending = [("", frozenset({(status.st_dev, status.st_ino)}))]
    while pending:
        folder, above = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError as error:
            place = printable(os.path.join(root, folder))
            raise ValueError(f"data.path={root}: the folder {place} cannot be listed ({error.strerror})") from error
        for entry in entries:
            name = f"{folder}{entry.name}"
            if not entry.is_dir():
                yield name, _size(entry)
            elif not (entry.name.startswith(".") or entry.name == "__MACOSX"):
                status = entry.stat()
                here = (status.st_dev, status.st_ino)
                if here not in above:  # else a link that leads back to a folder around it
                    pending.append((f"{name}/", above | {here}))


def _size(file: os.DirEntry[str] | str) -> int:
    try:
        return (os.stat(file) if isinstance(file, str) else file.stat()).st_size
    except OSError:  # a broken link
        return MISSING


def _walk_remote(uri: str) -> Iterator[tuple[str, int]]:
    _, path = open_filesystem(uri)
    for info in list_files(uri):
        name = info.path.removeprefix(path).lstrip("/")
        if not any(part.startswith(".") for part in name.split("/")[:-1]):
            yield name, info.size


def list_files(uri: str) -> list[fs.FileInfo]:
    """Every file below a URI (or the file that it names)."""
    system, path = open_filesystem(uri)
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise ValueError(f"data.path={uri}: does not exist; name the folder or file of the data set")
        if info.type == fs.FileType.File:
            return [info]
        found = system.get_file_info(fs.FileSelector(path, recursive=True))
    except OSError as error:
        raise ValueError(f"data.path={uri}: cannot be listed ({error}); check the address and the access") from error
    return [info for info in found if info.type == fs.FileType.File]
