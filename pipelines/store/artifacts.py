"""One artifact: a stage name, a key and a root go in; its files, manifest and state come out.

An artifact exists when its manifest does, and the manifest is written last. Before that only the Workspace of
the process that builds it sees the folder.
"""

import importlib.metadata
import os
import platform
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pipelines.store.errors import StoreError
from pipelines.store.storage import CHUNK, Folder

if TYPE_CHECKING:
    from pipelines.store.stages import Stage

MANIFEST = "manifest.json"
FORMAT = 1
HASH_UP_TO = 512 << 20  # bytes; a larger artifact is hashed by `verify` only, others by `get` too


class CorruptArtifact(StoreError):
    """The artifact has a manifest, and the manifest or a file is not what it should be."""


@dataclass(frozen=True)
class Artifact:
    """A handle: light, picklable, and the same before and after the artifact is built."""

    stage_name: str
    key: str
    root: str
    stage: "Stage | None" = field(default=None, compare=False, repr=False)  # None when opened by key alone

    @property
    def ref(self) -> str:
        return f"{self.stage_name}/{self.key}"

    @property
    def folder(self) -> Folder:
        return Folder(self.root, f"artifacts/{self.ref}")

    @property
    def scratch(self) -> Folder:
        return Folder(self.root, f"scratch/{self.ref}")

    @property
    def begun(self) -> Folder:
        """Holds <key>.json from the start of a build to its manifest: the inputs, which gc must spare."""
        return Folder(self.root, "begun")

    def exists(self) -> bool:
        return self.folder.exists(MANIFEST)

    def manifest(self) -> dict[str, Any]:
        self._require_built()
        manifest: dict[str, Any] = self.folder.read_json(MANIFEST)
        return manifest

    @property
    def info(self) -> dict[str, Any]:
        """What the stage's build returned."""
        info: dict[str, Any] = self.manifest()["info"]
        return info

    def path(self, name: str) -> str:
        """The full path or URI of a file, for libraries that open their own."""
        self._require_built()
        return self.folder.path(name)

    def local_path(self, name: str, manifest: dict[str, Any] | None = None) -> Path:
        """A path on this machine; a remote file is fetched once into the folder $BOWNET_CACHE.

        Who wants many files of an artifact gives its manifest, which is read for each of them otherwise.
        """
        if self.folder.is_local:
            return Path(self.path(name))
        return _fetched(self, name, manifest or self.manifest())

    def read_bytes(self, name: str) -> bytes:
        self._require_built()
        return self.folder.read_bytes(name)

    def read_json(self, name: str) -> Any:
        self._require_built()
        return self.folder.read_json(name)

    def read_npy(self, name: str, mmap: bool = True) -> np.ndarray:
        """The array; memory-mapped when the store is local, else read."""
        self._require_built()
        return self.folder.read_npy(name, mmap)

    def _require_built(self) -> None:
        if not self.exists():
            where = self.folder.path()
            raise StoreError(f"{self.ref}: not built, no {MANIFEST} in {where}; use Store.get(stage)")


@dataclass(frozen=True)
class Workspace(Folder):
    """Where a build writes: the artifact's own folder, and `scratch` for checkpoints and partial results.

    Both survive a crash, so a build may look at `list()` and do only what is missing. Scratch goes when the
    manifest is written. Picklable: workers write their shards with it.
    """

    reserved: ClassVar[frozenset[str]] = frozenset({MANIFEST})
    machine: Any = field(default=None, compare=False, repr=False)  # what the store was given to build on

    @property
    def key(self) -> str:
        return self.prefix.rsplit("/", 1)[-1]

    @property
    def scratch(self) -> Folder:
        return Folder(self.root, "scratch/" + self.prefix.removeprefix("artifacts/"))


def verified_manifest(artifact: Artifact, hash_up_to: int | None = HASH_UP_TO) -> dict[str, Any] | None:
    """The manifest of a whole artifact; None if there is none; CorruptArtifact if anything differs from it.

    Contents are hashed when all files together have at most `hash_up_to` bytes (None: always).
    """
    if not artifact.exists():
        return None
    try:
        manifest = artifact.folder.read_json(MANIFEST)
        written: dict[str, dict[str, Any]] = manifest["files"]
        claims = (manifest["format"], manifest["stage"], manifest["key"])
        sizes = {name: int(file["bytes"]) for name, file in written.items()}
        hashes = {name: str(file["sha256"]) for name, file in written.items()}
        manifest["info"], manifest["inputs"].values()
    except (StoreError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptArtifact(f"{artifact.ref}: {MANIFEST} cannot be understood ({error!r})") from error
    if claims != (FORMAT, artifact.stage_name, artifact.key):
        raise CorruptArtifact(f"{artifact.ref}: {MANIFEST} is of format {claims[0]}, {claims[1]}/{claims[2]}")
    present = artifact.folder.files()
    for name, size in sizes.items():
        if present.get(name) != size:
            have = f"{present[name]} bytes" if name in present else "missing"
            raise CorruptArtifact(f"{artifact.ref}: {name} is {have}, {MANIFEST} says {size} bytes")
    if hash_up_to is None or sum(sizes.values()) <= hash_up_to:
        for name, sha256 in hashes.items():
            if artifact.folder.sha256(name) != sha256:
                raise CorruptArtifact(f"{artifact.ref}: {name} has another sha256 than {MANIFEST} says")
    return dict(manifest)


def write_manifest(artifact: Artifact, made: dict[str, Any]) -> None:
    """Describe every file in the folder. From this write on the artifact exists."""
    folder = artifact.folder
    present = folder.files()
    with ThreadPoolExecutor() as pool:  # hashing lets go of Python's lock
        hashes = [*pool.map(folder.sha256, present)]
    files = {name: {"bytes": present[name], "sha256": sha256} for name, sha256 in zip(present, hashes, strict=True)}
    manifest = {
        "format": FORMAT,
        "stage": artifact.stage_name,
        "key": artifact.key,
        **made,
        "files": files,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "versions": {"python": platform.python_version(), "torch": _version("torch"), "ray": _version("ray")},
        "commit": commit(),
    }
    folder.sync()  # the files before the manifest that vouches for them
    try:
        folder.write_json(MANIFEST, manifest)
        folder.sync()
    except TypeError as error:
        raise ValueError(f"{artifact.ref}: what build() returned: {error}") from error


def discard(artifact: Artifact) -> None:
    """Manifest first: no one may find it beside missing files. Only for the holder of the lock."""
    artifact.folder.delete(MANIFEST)
    artifact.folder.delete_all()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)  # reads a text file; importing torch would take seconds
    except importlib.metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=1)
def commit() -> str | None:
    """The commit of this code, with -dirty when files differ from it; None outside a git checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        said = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=True, timeout=10)
        return said.stdout.decode().strip()
    except (OSError, subprocess.SubprocessError):
        return None


def cache_folder() -> Path:
    """Where this machine keeps what can be fetched or drawn again: $BOWNET_CACHE, or a folder for temporary files."""
    default = Path(tempfile.gettempdir()) / f"bownet-cache-{os.getuid()}"
    folder = Path(os.path.abspath(os.environ.get("BOWNET_CACHE") or default))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:  # what lies there is trusted without another look
        raise ValueError(f"BOWNET_CACHE={folder}: others may write there; name a folder of your own that only you may")
    return folder


def _fetched(artifact: Artifact, name: str, manifest: dict[str, Any]) -> Path:
    """A remote file on this machine, under its sha256, so that a rebuilt artifact is fetched anew."""
    files = manifest["files"]
    if name not in files:
        raise StoreError(f"{artifact.ref}: no file {name!r}; it has {', '.join(files) or 'none'}")
    sha256 = files[name]["sha256"]
    cache = Folder(str(cache_folder()))
    kept = f"{sha256}/{Path(name).name}"

    def download(path: Path) -> None:
        with artifact.folder.reading(name) as source, path.open("wb") as sink:
            while chunk := source.read(CHUNK):
                sink.write(chunk)

    if not cache.exists(kept):
        cache.write_via(kept, download)
        if cache.sha256(kept) != sha256:
            cache.delete(kept)
            raise CorruptArtifact(f"{artifact.ref}: {name} is not what {MANIFEST} says; get the stage again")
    return Path(cache.path(kept))
