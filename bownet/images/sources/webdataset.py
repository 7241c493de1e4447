"""WebDataset shards go in: tar files whose members 0001.jpg and 0001.cls are one sample; images and labels come out.

Headers are read once, when the set is opened, so that a worker seeks to its images. A shard may be gzipped, but then
every worker unpacks it from its beginning. The path: a folder, a glob, a pattern `train-{0000..0009}.tar`, a file.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.filesystems import is_local, open_filesystem
from bownet.images.decode import BadImage
from bownet.images.sources.files import list_files
from bownet.images.sources.listing import Listing, Part, Picture, Rows, Source
from bownet.images.sources.names import SUFFIXES, assign_splits, digest, number_classes, printable, split_of

_ENDINGS = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True, eq=False)
class ShardPart(Part):
    """Members of shards: where each begins in its (unpacked) shard, and its bytes."""

    uri: str
    shards: list[str]  # the path of each image's shard
    names: list[str]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def read(self) -> Iterator[Picture]:
        with ExitStack() as stack:
            current, stream, problem = "", None, ""
            for shard, name, offset, size in zip(self.shards, self.names, self.offsets, self.sizes, strict=True):
                try:
                    if shard != current:
                        stack.close()
                        current, stream = shard, None
                        stream = stack.enter_context(_opened(self.uri, shard))
                    if stream is None:  # it could not be opened for an image before
                        yield Picture(name, BadImage(problem))
                        continue
                    stream.seek(int(offset))
                    content = stream.read(int(size))
                    whole = len(content) == size
                    yield Picture(name, content if whole else BadImage("cannot be read: the shard ends in the image"))
                except (OSError, EOFError) as error:
                    problem = f"cannot be read: {str(error)[:150]}"
                    yield Picture(name, BadImage(problem))


@dataclass(frozen=True, eq=False)
class ShardListing(Listing):
    """All images of the shards of a split."""

    uri: str
    shards: list[str]
    names: list[str]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def part(self, rows: Rows) -> ShardPart:
        shards, names = [self.shards[i] for i in rows], [self.names[i] for i in rows]
        return ShardPart(self.uri, shards, names, self.offsets[rows], self.sizes[rows])


@dataclass
class _Sample:
    """An image of a shard while the index is made."""

    shard: str
    name: str
    offset: int
    size: int
    label: int | str | None = None


@dataclass
class _Index:
    samples: list[_Sample] = field(default_factory=list)
    without_image: int = 0


def open_webdataset(data: Data) -> Source:
    """Images in the order of the shards' names and of their place in the shard."""
    assert data.path is not None
    notes: list[str] = []
    by_split: dict[str | None, _Index] = {}
    for path, name in _find(data.path):
        _add(by_split.setdefault(split_of(name), _Index()), data.path, path, name)
    without = sum(index.without_image for index in by_split.values())
    if without:
        notes.append(f"{without} samples without an image were left out")
    samples = {split: index.samples for split, index in by_split.items() if index.samples}
    if not samples:
        raise ValueError(f"data.path={data.path}: no images (such as .jpg, .png) in its shards; name other shards")
    if any(s.label is not None for some in samples.values() for s in some):
        for split, some in [*samples.items()]:
            labelled = [s for s in some if s.label is not None]
            if len(labelled) < len(some):
                notes.append(
                    f"{len(some) - len(labelled)} {f'{split} ' if split else ''}images without a label were left out"
                )
            samples[split] = labelled
            if not labelled:
                del samples[split]
    found = assign_splits(samples, data.path, notes)
    is_labelled = found["train"][0].label is not None
    values = {split: [s.label for s in some if s.label is not None] for split, some in found.items() if is_labelled}
    labels, categories = number_classes(values)

    splits: dict[str, Listing] = {}
    parts: list[Any] = []
    for split, some in sorted(found.items()):
        names = [s.name for s in some]
        offsets, sizes = (np.array([getattr(s, what) for s in some], np.int64) for what in ("offset", "size"))
        splits[split] = ShardListing(data.path, [s.shard for s in some], names, offsets, sizes, labels.get(split))
        parts += [split, names, sizes, labels.get(split)]
    mean = int(np.mean([s.size for some in found.values() for s in some]))
    return Source(splits, categories, digest("webdataset", [*categories], *parts), mean, tuple(notes))


def expand_braces(pattern: str) -> list[str]:
    """`a-{00..02}.tar` -> a-00.tar, a-01.tar, a-02.tar; `{x,y}` too. All of them, in order."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        return [pattern]
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", match[1])
    if numbers:
        low, high = numbers[1], numbers[2]
        choices = [str(i).zfill(len(low)) for i in range(int(low), int(high) + 1)]
    else:
        choices = match[1].split(",")
    return [whole for c in choices for whole in expand_braces(pattern[: match.start()] + c + pattern[match.end() :])]


def _find(uri: str) -> list[tuple[str, str]]:
    """Path and name of every shard, in order of name."""
    paths: list[str] = []
    for one in expand_braces(uri):
        _, root = open_filesystem(one)
        if is_local(one) and not os.path.exists(root) and glob.has_magic(root):
            paths += sorted(glob.glob(root, recursive=True))
        else:
            paths += sorted(i.path for i in list_files(one) if i.path == root or i.path.endswith(_ENDINGS))
    if not paths:
        raise ValueError(f"data.path={uri}: no shards ({', '.join(_ENDINGS)}) there; name their folder or a pattern")
    base = os.path.dirname(paths[0]) if len(paths) == 1 else os.path.commonpath([os.path.dirname(p) for p in paths])
    return [(path, path.removeprefix(base).lstrip("/")) for path in paths]


def _opened(uri: str, path: str) -> IO[bytes]:
    system, _ = open_filesystem(expand_braces(uri)[0])
    stream: IO[bytes] = system.open_input_file(path)
    return gzip.GzipFile(fileobj=stream) if path.endswith("gz") else stream  # type: ignore[return-value]


def _add(index: _Index, uri: str, path: str, shard: str) -> None:
    """Read the headers of a shard. Members that follow each other with the same key are one sample."""
    try:
        with _opened(uri, path) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            key, image, label = None, None, None
            for member in tar:
                match = re.fullmatch(r"((?:.*/)?[^./][^./]*)\.([^/]+)", member.name)
                if not member.isfile() or not match:
                    continue
                if match[1] != key:
                    _finish(index, key, image, label)
                    key, image, label = match[1], None, None
                ending = match[2].lower()
                if ending.rpartition(".")[2] in SUFFIXES and image is None:
                    name = printable(f"{shard}#{member.name}")
                    image = _Sample(path, name, member.offset_data, member.size)
                elif ending == "cls" or (ending == "json" and label is None):
                    content = tar.extractfile(member)
                    assert content is not None
                    label = _label(content.read(), ending)
            _finish(index, key, image, label)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"data.path={uri}: {shard} is not a whole tar file ({error}); fetch it again") from error


def _finish(index: _Index, key: str | None, image: _Sample | None, label: int | str | None) -> None:
    if image is not None:
        image.label = label
        index.samples.append(image)
    elif key is not None:
        index.without_image += 1


def _label(content: bytes, ending: str) -> int | str | None:
    """A class number, a class name, or nothing."""
    text: Any = content.decode("utf-8", "replace").strip()
    if ending == "json":
        try:
            value = json.loads(text)
        except ValueError:
            return None
        text = value.get("label") if isinstance(value, dict) else None
        if text is None or isinstance(text, bool | float | list | dict):
            return None
    return int(text) if re.fullmatch(r"-?\d+", str(text)) else str(text) or None
