"""images: a data set becomes shards of raw pixels with labels, made in parallel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.images import scenes
from pipelines.stages.shards import Row, for_each_shard
from pipelines.store import Artifact, Estimate, Stage, Workspace

SPLITS = ("train", "test", "novel")


@dataclass(frozen=True)
class Images(Stage):
    """Splits: `train` and `test` of the base categories, `novel` of the categories kept for few-shot episodes."""

    data: Data

    name = "images"
    version = 1

    def counts(self) -> dict[str, int]:
        return {
            "train": self.data.train,
            "test": self.data.test,
            "novel": self.data.novel_per_class * len(scenes.NOVEL),
        }

    def shards(self) -> list[Row]:
        size = self.data.shard_size
        return [
            {"split": split, "start": start, "stop": min(start + size, count), "name": f"{split}-{start // size:05d}"}
            for split, count in self.counts().items()
            for start in range(0, count, size)
        ]

    def estimate(self) -> Estimate:
        total = sum(self.counts().values()) * self.data.image_size**2 * 3
        counts = ", ".join(f"{n} {split}" for split, n in self.counts().items())
        return Estimate(counts, self.data.shard_size * self.data.image_size**2 * 300, total)

    def build(self, work: Workspace) -> dict[str, Any]:
        done = for_each_shard(self.shards(), partial(_draw_shard, data=self.data, work=work), work.machine)
        train = [row for row in done if row["split"] == "train"]
        pixels = self.counts()["train"] * self.data.image_size**2
        mean = np.sum([row["sum"] for row in train], 0) / pixels
        std = np.sqrt(np.sum([row["sum_of_squares"] for row in train], 0) / pixels - mean**2)
        return {
            "counts": self.counts(),
            "shards": [{k: row[k] for k in ("split", "start", "stop", "name")} for row in done],
            "mean": mean.round(6).tolist(),
            "std": std.round(6).tolist(),
            "categories": list(scenes.CATEGORIES),
        }


def _draw_shard(row: Row, data: Data, work: Workspace) -> Row:
    name = row["name"]
    if work.exists(f"{name}.images.npy") and work.exists(f"{name}.labels.npy"):
        images = work.read_npy(f"{name}.images.npy")
    else:
        of_split = scenes.NOVEL if row["split"] == "novel" else scenes.BASE
        category = scenes.labels(row["stop"], of_split)[row["start"] :]
        seed = data.seed * 16 + 4 * SPLITS.index(row["split"])
        images = scenes.draw_labelled(category, data.image_size, seed, row["start"])
        work.write_npy(f"{name}.images.npy", images)
        work.write_npy(f"{name}.labels.npy", category)
    pixels = images.reshape(-1, 3) / 255.0
    return {**row, "sum": pixels.sum(0).tolist(), "sum_of_squares": (pixels**2).sum(0).tolist()}


def data_of(images: Artifact) -> Data:
    """The settings of an images artifact, built or planned."""
    assert isinstance(images.stage, Images), images.ref
    return images.stage.data


def load_split(images: Artifact, split: str, what: str = "images") -> NDArray[Any]:
    """All shards of a split in order, as one array: `images` [N, H, W, 3] or `labels` [N]."""
    names = [row["name"] for row in images.info["shards"] if row["split"] == split]
    return np.concatenate([images.read_npy(f"{name}.{what}.npy") for name in names])
