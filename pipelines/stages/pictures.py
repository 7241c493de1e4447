"""Reading an images artifact: pixels, labels and names of a split, a shard or single rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.images.decode import BadImage, quietly
from bownet.images.views import clean_file_view
from pipelines.stages.images import Images
from pipelines.stages.shards import Row
from pipelines.store import Artifact

Pixels = NDArray[np.uint8]
FILES_OPEN = 2048  # shards whose files a process keeps mapped: nothing is read of them but what is asked for
View = Callable[[bytes], "Pixels | BadImage"]


def data_of(images: Artifact) -> Data:
    """The settings of an images artifact, built or planned."""
    return _stage(images).data


def count_of(images: Artifact, split: str) -> int:
    """Images of a split: as stored, or as listed while it is not built."""
    if images.exists():
        return int(images.info["counts"].get(split, 0))
    return _stage(images).counts().get(split, 0)


def class_counts_of(images: Artifact, split: str) -> list[int]:
    """Images of each class that occurs in a split, in the order of the classes; empty without labels."""
    return [*counts_by_class(images, split).values()]


def counts_by_class(images: Artifact, split: str) -> dict[int, int]:
    """The same with the numbers of the classes."""
    if images.exists():
        counts = images.info["class_counts"].get(split, [])
    else:
        listing = _stage(images).source().splits.get(split)
        counts = [] if listing is None or listing.labels is None else np.bincount(listing.labels).tolist()
    return {number: count for number, count in enumerate(counts) if count}


def fewshot_split(images: Artifact) -> str:
    """The categories kept for few-shot episodes, or the test images where there are none."""
    return "novel" if count_of(images, "novel") else "test"


def shards_of(images: Artifact, split: str) -> list[Row]:
    """Those with an image at least: of a shard all may have been unreadable."""
    return [row for row in images.info["shards"] if row["split"] == split and row["start"] < row["stop"]]


def labels_of(images: Artifact, split: str) -> NDArray[np.int64]:
    """Class numbers of all images of a split."""
    return np.concatenate(
        [np.array(images.read_json(f"{row['name']}.json")["labels"], np.int64) for row in shards_of(images, split)]
    )


def shard_labels(images: Artifact, row: Row) -> NDArray[np.int64] | None:
    labels = images.read_json(f"{row['name']}.json")["labels"]
    return None if labels is None else np.array(labels, np.int64)


def names_of(images: Artifact, row: Row) -> list[str]:
    """The stable names of a shard's images: where each one lies in its data set."""
    names: list[str] = images.read_json(f"{row['name']}.json")["names"]
    return names


def annotations_of(images: Artifact, split: str) -> list[dict[str, Any]]:
    """What the reader of VOC says of every image of a split, in order; empty for other kinds of data."""
    rows = [images.read_json(f"{row['name']}.json")["annotations"] for row in shards_of(images, split)]
    return [annotation for row in rows for annotation in row or []]


def pixels_of(images: Artifact, row: Row) -> Pixels:
    """The clean images of a shard [n, size, size, 3]: as stored, or the centre of each file."""
    data = data_of(images)
    if data.is_raw:
        return np.array(images.read_npy(f"{row['name']}.images.npy"))
    read = row_reader(images, row["split"])
    return read(np.arange(row["start"], row["stop"]), lambda content, _: clean_view(content, data))


def load_split(images: Artifact, split: str) -> Pixels:
    """All clean images of a split in order."""
    return np.concatenate([pixels_of(images, row) for row in shards_of(images, split)])


def clean_view(content: bytes, data: Data) -> Pixels:
    """What a teacher and an evaluator see of a file."""
    return checked(clean_file_view(content, data.image_size))


def checked(pixels: Pixels | BadImage) -> Pixels:
    """Stored files were all decoded once, so that one which no longer can be is a damaged store."""
    if isinstance(pixels, BadImage):
        raise OSError(f"a stored image cannot be read ({pixels.reason}); run python -m pipelines.store verify")
    return pixels


def row_reader(images: Artifact, split: str) -> Callable[[NDArray[np.int64], Any], Pixels]:
    """Reads any rows of a split: `view(content, row)` makes pixels of a stored file; raw pixels need no view."""
    names, starts, raw = _layout(images, split)

    def read(rows: NDArray[np.int64], view: Callable[[bytes, int], Pixels] | None) -> Pixels:
        shard_of_row = np.searchsorted(starts, rows, side="right") - 1
        out: Pixels | None = None
        for shard in np.unique(shard_of_row):
            here = np.nonzero(shard_of_row == shard)[0]
            local = rows[here] - starts[shard]
            if raw:
                made = _pixels_file(images, names[shard])[local]
            else:
                content, offsets = _files(images, names[shard])
                assert view is not None
                with quietly():
                    made = np.stack(
                        [
                            view(bytes(content[offsets[i] : offsets[i + 1]]), int(row))
                            for i, row in zip(local, rows[here], strict=True)
                        ]
                    )
            if out is None:
                out = np.empty((len(rows), *made.shape[1:]), np.uint8)
            out[here] = made
        assert out is not None, "no rows"
        return out

    return read


@lru_cache(maxsize=4)
def _layout(images: Artifact, split: str) -> tuple[list[str], NDArray[np.int64], bool]:
    """The names of a split's shards, where each begins, and whether they are raw; kept by the worker process."""
    rows = shards_of(images, split)
    return [row["name"] for row in rows], np.array([row["start"] for row in rows]), data_of(images).is_raw


# Files are opened when a row of theirs is read: of a remote store each is fetched first, and most processes read few.
@lru_cache(maxsize=FILES_OPEN)
def _pixels_file(images: Artifact, shard: str) -> Pixels:
    pixels: Pixels = np.load(_local(images, f"{shard}.images.npy"), mmap_mode="r", allow_pickle=False)
    return pixels


@lru_cache(maxsize=FILES_OPEN)
def _files(images: Artifact, shard: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a shard's files, one after the other, and where each begins."""
    offsets = np.load(_local(images, f"{shard}.offsets.npy"), allow_pickle=False)
    return np.memmap(_local(images, f"{shard}.bytes"), np.uint8, "r"), offsets


def _local(images: Artifact, name: str) -> Path:
    return images.local_path(name, None if images.folder.is_local else _manifest(images))


@lru_cache(maxsize=4)
def _manifest(images: Artifact) -> dict[str, Any]:
    return images.manifest()


def _stage(images: Artifact) -> Images:
    assert isinstance(images.stage, Images), images.ref
    return images.stage
