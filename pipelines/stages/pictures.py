"""Reading an images artifact: pixels, labels and names of a split, a shard or single rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.images.decode import BadImage, quietly
from bownet.images.views import RESIZE, centre_view
from pipelines.stages.images import Images
from pipelines.stages.shards import Row
from pipelines.store import Artifact

Pixels = NDArray[np.uint8]
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
    if images.exists():
        counts = images.info["class_counts"].get(split, [])
    else:
        listing = _stage(images).source().splits.get(split)
        counts = [] if listing is None or listing.labels is None else np.bincount(listing.labels).tolist()
    return [count for count in counts if count]


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
    return checked(centre_view(content, data.image_size, round(data.image_size * RESIZE)))


def checked(pixels: Pixels | BadImage) -> Pixels:
    """Stored files were all decoded once, so that one which no longer can be is a damaged store."""
    if isinstance(pixels, BadImage):
        raise OSError(f"a stored image cannot be read ({pixels.reason}); run python -m pipelines.store verify")
    return pixels


def row_reader(images: Artifact, split: str) -> Callable[[NDArray[np.int64], Any], Pixels]:
    """Reads any rows of a split: `view(content, row)` makes pixels of a stored file; raw pixels need no view."""
    folder, starts, raw = _layout(images, split)

    def read(rows: NDArray[np.int64], view: Callable[[bytes, int], Pixels] | None) -> Pixels:
        shard_of_row = np.searchsorted(starts, rows, side="right") - 1
        out: Pixels | None = None
        for shard in np.unique(shard_of_row):
            here = np.nonzero(shard_of_row == shard)[0]
            local = rows[here] - starts[shard]
            if raw:
                made = folder[shard][0][local]
            else:
                content, offsets = folder[shard]
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
def _layout(images: Artifact, split: str) -> tuple[dict[int, Any], NDArray[np.int64], bool]:
    """Where each shard of a split begins, and its files, memory-mapped; kept by the worker process."""
    rows = shards_of(images, split)
    raw = data_of(images).is_raw
    files: dict[int, Any] = {}
    for i, row in enumerate(rows):
        if raw:
            files[i] = (images.read_npy(f"{row['name']}.images.npy"),)
        else:
            offsets = images.read_npy(f"{row['name']}.offsets.npy", mmap=False)
            files[i] = (np.memmap(images.local_path(f"{row['name']}.bytes"), np.uint8, "r"), offsets)
    return files, np.array([row["start"] for row in rows]), raw


def _stage(images: Artifact) -> Images:
    assert isinstance(images.stage, Images), images.ref
    return images.stage
