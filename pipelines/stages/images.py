"""images: any data set becomes shards of checked images with their names and labels, made in parallel.

Small images are stored as raw pixels of their final size, large ones as the bytes of their files. A shard's record,
written last, says what is in it; a shard that has one is never made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.config.data import WITHOUT_FILES
from bownet.images.decode import BadImage, decode, decode_shrunk, quietly
from bownet.images.sources import open_source
from bownet.images.sources.listing import Part, Picture, Source
from bownet.images.views import fit_square
from bownet.masking import without_password
from pipelines.stages.shards import Row, Unwritten, for_each_shard, packed, require_files, unpacked
from pipelines.store import Artifact, Estimate, Stage, Workspace

Content = bytes | NDArray[np.uint8] | BadImage
FIRST = 10  # unreadable images that an error names


@dataclass(frozen=True)
class Images(Stage):
    """Splits: `train` always; `test` and `novel`, the categories kept for few-shot episodes, where the set has them."""

    data: Data

    name = "images"
    version = 2

    def config(self) -> dict[str, Any]:
        """What the images are, not where they lie: the same set on another machine has the same key."""
        storage = {"raw": self.data.is_raw, "size": self.data.image_size, "shard_size": self.data.shard_size}
        return {"source": self.source().fingerprint, **storage}

    def check(self) -> None:
        if not self.data.is_raw and self.data.kind in WITHOUT_FILES:
            raise ValueError(
                f"data.storage={self.data.storage}: data.kind={self.data.kind} has no files that could be kept; use raw"
            )

    def source(self) -> Source:
        return opened(self.data)

    def counts(self) -> dict[str, int]:
        return {split: len(listing) for split, listing in self.source().splits.items()}

    def notes(self) -> list[str]:
        """For people, before anything runs."""
        source = self.source()
        labels = f"{len(source.categories)} classes" if source.categories else "no labels"
        stored = f"{self.data.image_size}-pixel squares" if self.data.is_raw else "files as they are"
        counts = ", ".join(f"{n} {split}" for split, n in self.counts().items())
        return [f"data: {counts}; {labels}; stored as {stored}", *source.notes]

    def estimate(self) -> Estimate:
        counts, size = self.counts(), self.data.image_size
        each = size**2 * 3 if self.data.is_raw else self.source().bytes_per_image
        at_a_time = self.data.shard_size * (size**2 * 6 + self.source().bytes_per_image)
        return Estimate(
            ", ".join(f"{n} {split}" for split, n in counts.items()), at_a_time, sum(counts.values()) * each
        )

    def build(self, work: Workspace) -> dict[str, Any]:
        source = self.source()
        rows = [
            {
                "split": split,
                "name": f"{split}-{start // self.data.shard_size:05d}",
                "part": packed(listing.part(np.arange(start, min(start + self.data.shard_size, len(listing))))),
                "labels": None if listing.labels is None else listing.labels[start : start + self.data.shard_size],
                "of": len(listing),
            }
            for split, listing in source.splits.items()
            for start in range(0, len(listing), self.data.shard_size)
        ]
        done = for_each_shard(rows, partial(_make_shard, data=self.data, work=work), work.machine, self.label)
        endings = ("json", "images.npy") if self.data.is_raw else ("json", "offsets.npy", "bytes")
        require_files(work, [f"{row['name']}.{ending}" for row in done for ending in endings])
        for split, listing in source.splits.items():
            bad = [image for row in done if row["split"] == split for image in row["bad"]]
            refuse_if_too_many(bad, split, len(listing), self.data)
        return _summary(done, source)

    def remark(self, artifact: Artifact) -> str | None:
        bad = artifact.info["bad"]
        if not bad:
            return None
        total = sum(artifact.info["counts"].values()) + len(bad)
        where = without_password(artifact.folder.path("manifest.json"))
        return f"{len(bad)} of {total} images cannot be read and are left out; {where}"


@lru_cache(maxsize=4)
def opened(data: Data) -> Source:
    """The data set of these settings, opened once per process."""
    return open_source(data)


def refuse_if_too_many(bad: list[dict[str, str]], split: str, total: int, data: Data) -> None:
    if len(bad) > data.max_bad_fraction * total:
        first = ", ".join(f"{image['name']} ({image['reason']})" for image in bad[:FIRST])
        more = ", ..." if len(bad) > FIRST else ""
        raise ValueError(
            f"data.max_bad_fraction={data.max_bad_fraction}: {len(bad)} of {total} {split} images cannot be read: "
            f"{first}{more}; mend or remove them, or raise data.max_bad_fraction"
        )


def _make_shard(row: Row, data: Data, work: Workspace) -> Row | Unwritten:
    record = f"{row['name']}.json"
    if work.exists(record):
        return dict(work.read_json(record))
    part: Part = unpacked(row["part"])
    shard = _Shard(data)
    labels = None if row["labels"] is None else row["labels"].tolist()
    with quietly():
        for i, picture in enumerate(part.read()):
            shard.add(picture, None if labels is None else labels[i])
    refuse_if_too_many(shard.bad, row["split"], row["of"], data)  # of this shard alone too many for all
    shard.finish()

    def write() -> Row:
        shard.write(row["name"], work)
        made = {"split": row["split"], "name": row["name"], **shard.record()}
        work.write_json(record, made)
        return made

    return write


class _Shard:
    """Collects the images of a shard, and what is to be known about them."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._kept: list[Any] = []
        self._names: list[str] = []
        self._labels: list[int] = []
        self._annotations: list[Any] = []
        self._sizes: list[tuple[int, ...]] = []
        self._sum, self._squares, self._pixels = np.zeros(3), np.zeros(3), 0
        self.bad: list[dict[str, str]] = []

    def add(self, picture: Picture, label: int | None) -> None:
        made = self._raw(picture.content) if self._data.is_raw else self._encoded(picture.content)
        if isinstance(made, BadImage):
            self.bad.append({"name": picture.name, "reason": made.reason})
            return
        kept, size = made
        self._kept.append(kept)
        self._names.append(picture.name)
        self._sizes.append(size)
        if label is not None:
            self._labels.append(label)
        if picture.annotation is not None:
            self._annotations.append(picture.annotation)

    def _raw(self, content: Content) -> tuple[Any, tuple[int, ...]] | BadImage:
        """A square of the final size, and the image's own height and width."""
        pixels = decode(content) if isinstance(content, bytes) else content
        if isinstance(pixels, BadImage):
            return pixels
        return fit_square(pixels, self._data.image_size), pixels.shape[:2]

    def _encoded(self, content: Content) -> tuple[Any, tuple[int, ...]] | BadImage:
        """The file as it is, once it has been seen to be whole, and its height and width."""
        if isinstance(content, BadImage):
            return content
        if not isinstance(content, bytes):
            return BadImage("pixels without a file; use data.storage=raw")
        shrunk = decode_shrunk(content, self._data.image_size)
        if isinstance(shrunk, BadImage):
            return shrunk
        self._count(fit_square(shrunk[0], self._data.image_size))  # raw pixels are counted all at once
        return content, shrunk[1]

    def _count(self, pixels: NDArray[np.uint8]) -> None:
        """Sums of whole numbers below 2^24, exact in single precision in any order."""
        per_image = pixels.reshape(-1, self._data.image_size**2 * 3)
        at_once = max(1, 2**24 // 255**2)  # images
        for start in range(0, len(per_image), at_once):
            x = per_image[start : start + at_once].astype(np.float32)
            ones = np.ones(len(x), np.float32)
            self._sum += (ones @ x).reshape(-1, 3).sum(0, dtype=np.float64)
            self._squares += (ones @ np.square(x, out=x)).reshape(-1, 3).sum(0, dtype=np.float64)
        self._pixels += len(per_image) * self._data.image_size**2

    def finish(self) -> None:
        """After the last image."""
        if self._data.is_raw:
            side = self._data.image_size
            self._images = np.stack(self._kept) if self._kept else np.empty((0, side, side, 3), np.uint8)
            self._count(self._images)

    def write(self, name: str, work: Workspace) -> None:
        if self._data.is_raw:
            work.write_npy(f"{name}.images.npy", self._images)
            return
        work.write_npy(f"{name}.offsets.npy", np.cumsum([0, *map(len, self._kept)]))
        work.write_bytes(f"{name}.bytes", b"".join(self._kept))

    def record(self) -> Row:
        sizes = np.array(self._sizes).reshape(-1, 2)
        return {
            "count": len(self._names),
            "names": self._names,
            "labels": self._labels or None,
            "annotations": self._annotations or None,
            "bad": self.bad,
            "sum": self._sum.tolist(),
            "squares": self._squares.tolist(),
            "pixels": self._pixels,
            "sizes": {"min": sizes.min(0), "sum": sizes.sum(0), "max": sizes.max(0)} if len(sizes) else None,
        }


def _summary(done: list[Row], source: Source) -> dict[str, Any]:
    """What the manifest says: counts, where each shard begins, statistics of the training images, what is bad."""
    shards: list[Row] = []
    counts = dict.fromkeys(source.splits, 0)
    histogram: dict[str, list[int]] = {}
    for row in done:
        split, start = row["split"], counts[row["split"]]
        counts[split] += row["count"]
        shards.append({"split": split, "name": row["name"], "start": start, "stop": counts[split]})
        if row["labels"] is not None:
            seen = np.bincount(row["labels"], minlength=len(source.categories))
            histogram[split] = (np.array(histogram.get(split, 0)) + seen).tolist()
    train = [row for row in done if row["split"] == "train"]
    pixels = max(1, sum(row["pixels"] for row in train))
    mean = np.sum([row["sum"] for row in train], 0) / pixels / 255
    std = np.sqrt(np.maximum(np.sum([row["squares"] for row in train], 0) / pixels / 255**2 - mean**2, 0))
    sized = [row["sizes"] for row in done if row["sizes"] is not None]
    return {
        "counts": counts,
        "shards": shards,
        "mean": mean.round(6).tolist(),
        "std": std.round(6).tolist(),
        "height_width": {
            "min": np.min([s["min"] for s in sized], 0).tolist(),
            "mean": (np.sum([s["sum"] for s in sized], 0) / sum(counts.values())).round(2).tolist(),
            "max": np.max([s["max"] for s in sized], 0).tolist(),
        },
        "categories": list(source.categories),
        "class_counts": histogram,
        "bad": [{"split": row["split"], **image} for row in done for image in row["bad"]],
    }
