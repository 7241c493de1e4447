"""Named files under one root, a local folder or a pyarrow/fsspec URI: a name goes in, a whole file comes out.

A write is whole or absent. On a local disk that is a temporary file, fsync and rename; on an object store an
object appears when its upload closes; on other remote file systems a temporary file is moved into place.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
from pyarrow import fs

from bownet.filesystems import open_filesystem
from pipelines.store.errors import StoreError, explained

TEMPORARY = ".tmp-"  # files that begin so belong to a writer that has not finished, or never will
CHUNK = 8 << 20
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})


def absolute_root(root: str | os.PathLike[str]) -> str:
    """A root that means the same in every process: an absolute local path, or the URI unchanged."""
    text = os.fspath(root)
    if not text:
        raise StoreError("store='': empty path; name a folder or a URI such as s3://bucket/store")
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    return text.rstrip("/") if "://" in text else os.path.abspath(os.path.expanduser(text))


def is_local(root: str) -> bool:
    return "://" not in root


def _opened(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of a root, and the root's path inside it."""
    try:
        return open_filesystem(root)
    except ValueError as error:
        raise StoreError(f"store={error}") from error


class FileEntry(NamedTuple):
    name: str
    bytes: int
    modified: float  # seconds since the epoch; 0 where the store does not say


Names = list[str]  # spelt out here because a Folder's own `list` hides the built-in one
Walk = list[FileEntry]


@dataclass(frozen=True)
class Folder:
    """A folder under a root. Small and picklable: a worker on another machine can write with it."""

    root: str
    prefix: str = ""
    reserved: ClassVar[frozenset[str]] = frozenset()  # names that only the store itself writes

    @property
    def is_local(self) -> bool:
        return is_local(self.root)

    def folder(self, name: str) -> "Folder":
        return Folder(self.root, self._inside(name))

    def path(self, name: str = "") -> str:
        """The full path or URI of a file (or of the folder), for libraries that open their own."""
        base, mark, query = self.root.partition("?") if not self.is_local else (self.root, "", "")
        inside = self._inside(name)
        return (f"{base}/{inside}" if inside else base) + mark + query

    def walk(self) -> Walk:
        """Every file below, temporary ones too."""
        system, base = self._place()
        with explained("list", self.path()):
            found = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        return [
            FileEntry(_below(base, info.path), info.size, info.mtime.timestamp() if info.mtime else 0.0)
            for info in found
            if info.type == fs.FileType.File
        ]

    def files(self) -> dict[str, int]:
        """Name and bytes of every finished file below, in order of name."""
        return {entry.name: entry.bytes for entry in sorted(self.walk()) if not _is_temporary(entry.name)}

    def list(self) -> Names:
        return [*self.files()]

    def subfolders(self) -> Names:
        system, base = self._place()
        with explained("list", self.path()):
            found = system.get_file_info(fs.FileSelector(base, allow_not_found=True))
        return sorted(_below(base, info.path) for info in found if info.type == fs.FileType.Directory)

    def exists(self, name: str = "") -> bool:
        system, path = self._place(name)
        with explained("read", self.path(name)):
            return bool(system.get_file_info(path).type != fs.FileType.NotFound)

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        system, path = self._place(name)
        # compression=None: pyarrow would otherwise unpack a .gz behind the back of its checksum.
        with explained("read", self.path(name)), system.open_input_stream(path, compression=None) as stream:
            yield stream

    def read_bytes(self, name: str) -> bytes:
        with self.reading(name) as stream:
            return stream.read()

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.read_bytes(name))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise StoreError(f"{self.path(name)}: not JSON ({error}); delete it") from error

    def read_npy(self, name: str, mmap: bool = True) -> np.ndarray:
        """The array; memory-mapped and read-only when the store is local, else read whole."""
        if not self.is_local:
            remote: np.ndarray = np.load(io.BytesIO(self.read_bytes(name)), allow_pickle=False)
            return remote
        with explained("read", self.path(name)):
            local: np.ndarray = np.load(self.path(name), mmap_mode="r" if mmap else None, allow_pickle=False)
            return local

    def sha256(self, name: str) -> str:
        digest = hashlib.sha256()
        with self.reading(name) as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def write_via(self, name: str, write: Callable[[Path], object]) -> None:
        """Let `write` make the file at a local path of our choice, then put it in place whole."""
        self._check_writable_name(name)
        with explained("write", self.path(name)):
            if self.is_local:
                _replace_local(Path(self.path(name)), write)
                return
            with tempfile.TemporaryDirectory() as near:
                made = Path(near) / Path(name).name
                write(made)
                with made.open("rb") as source:
                    self._upload(name, source)

    def write_bytes(self, name: str, data: bytes) -> None:
        if self.is_local:
            self.write_via(name, lambda path: path.write_bytes(data))
            return
        self._check_writable_name(name)
        with explained("write", self.path(name)):
            self._upload(name, io.BytesIO(data))

    def write_json(self, name: str, value: Any) -> None:
        self.write_bytes(name, json.dumps(value, indent=1, default=_plain).encode() + b"\n")

    def write_npy(self, name: str, array: np.ndarray) -> None:
        def save(path: Path) -> None:
            with path.open("wb") as file:  # a file, not a path: numpy would append .npy to the temporary name
                np.save(file, array, allow_pickle=False)

        self.write_via(name, save)

    def sync(self) -> None:
        """Return when every file that was written here before would outlive a power cut."""
        if self.is_local:
            with explained("write", self.path()):
                _sync(Path(self.path()))

    def delete(self, name: str) -> None:
        system, path = self._place(name)
        with explained("delete", self.path(name)), suppress(FileNotFoundError):
            system.delete_file(path)

    def delete_all(self) -> None:
        system, base = self._place()
        with explained("delete", self.path()), suppress(FileNotFoundError):
            if self.is_local:
                shutil.rmtree(base)
            else:
                system.delete_dir(base)

    def delete_temporaries(self) -> None:
        """Remove what killed writers left. Only for the holder of the artifact's lock."""
        for entry in self.walk():
            if _is_temporary(entry.name):
                self.delete(entry.name)

    def _inside(self, name: str) -> str:
        if name.startswith("/") or ".." in name.split("/"):
            raise StoreError(f"name={name!r}: a file lies inside its folder; use a name without '..'")
        return "/".join(part for part in (self.prefix, name) if part)

    def _check_writable_name(self, name: str) -> None:
        if not name or name in self.reserved or _is_temporary(name):
            raise StoreError(f"name={name!r}: reserved by the store; choose another file name")

    def _place(self, name: str = "") -> tuple[fs.FileSystem, str]:
        system, base = _opened(self.root)
        inside = self._inside(name)
        return system, f"{base}/{inside}" if inside else base

    def _upload(self, name: str, source: IO[bytes]) -> None:
        system, final = self._place(name)
        target = final
        if urlsplit(self.root).scheme not in OBJECT_STORES:
            parent, _, last = final.rpartition("/")
            system.create_dir(parent, recursive=True)
            target = f"{parent}/{TEMPORARY}{uuid.uuid4().hex[:12]}-{last}"
        try:
            with system.open_output_stream(target, compression=None) as sink:
                while chunk := source.read(CHUNK):
                    sink.write(chunk)
            if target != final:
                system.move(target, final)
        except BaseException:
            with suppress(Exception):  # leaving the `with` may have published a truncated object
                system.delete_file(target)
            raise


def _replace_local(final: Path, write: Callable[[Path], object]) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f"{TEMPORARY}{uuid.uuid4().hex[:12]}-{final.name}")  # keeps the suffix
    try:
        write(temporary)
        _sync(temporary)
        os.replace(temporary, final)  # a power cut may undo it, but none that came before it: journals keep the order
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _below(base: str, path: str) -> str:
    return path.removeprefix(base).lstrip("/")


def _is_temporary(name: str) -> bool:
    return name.rpartition("/")[2].startswith(TEMPORARY)


def _plain(value: Any) -> Any:
    """What may be written as JSON besides plain values: settings models, numpy numbers and arrays, paths."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r}: a {type(value).__name__} is not JSON; convert it to numbers, text or lists")


def human_size(count: float) -> str:
    """Bytes as people read them: 12 B, 3.4 MB."""
    unit = "B"
    for bigger in ("KB", "MB", "GB", "TB"):
        if count < 1000:
            break
        count, unit = count / 1000, bigger
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
