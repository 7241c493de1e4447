"""vocabulary: sampled feature vectors of the frozen teacher are clustered into K visual words (equation 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bownet.config import Net, Vocabulary
from bownet.nets.build import build_backbone
from bownet.words.kmeans import Sums, assign_and_sum, kmeans, sample_rows
from bownet.words.vocabulary import feature_maps, perplexity, sample_vectors
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of, pixels_of, shards_of
from pipelines.stages.shards import Row, for_each_shard, teacher_of
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Folder, Workspace

PARTS = 16  # of the vectors, and so the most workers that k-means uses


class Geometry(NamedTuple):
    """How many vectors there are."""

    grid: int  # positions along a side of the feature map, border included
    per_image: int  # vectors that are sampled of each image
    vectors: int
    channels: int


@dataclass(frozen=True)
class BuildVocabulary(ModelStage):
    vocabulary: Vocabulary
    seed: int
    images: Artifact
    teacher: Artifact
    net: Net = field(metadata=NOT_IN_KEY)  # of the teacher, for checks and estimates; its weights are an input

    name = "vocabulary"
    title = "vocabulary"
    version = 1

    def check(self) -> None:
        """Raise now what would fail after the teacher's training."""
        vectors, images = self.geometry().vectors, count_of(self.images, "train")
        if self.vocabulary.size > vectors:
            raise ValueError(
                f"vocabulary.size={self.vocabulary.size}: {images} images give {vectors} vectors "
                f"of {self.vocabulary.tap}, use 2..{vectors}"
            )

    def geometry(self) -> Geometry:
        data, train, tap = data_of(self.images), count_of(self.images, "train"), self.vocabulary.tap
        with torch.device("meta"):
            backbone = build_backbone(self.net, 0)
        if tap not in backbone.tap_channels:
            raise ValueError(f"vocabulary.tap={tap!r}: {self.net.arch} has {', '.join(backbone.taps[:-1])}")
        stride = backbone.tap_strides[tap]
        grid = data.image_size // stride if stride else 1
        if grid < 3:
            raise ValueError(
                f"vocabulary.tap={tap!r}: its map of {data.image_size}-pixel images is {grid}x{grid}, without inner "
                "positions; use an earlier tap or larger images"
            )
        wanted = math.ceil(self.vocabulary.size * self.vocabulary.max_points_per_word / max(1, train))
        per_image = min((grid - 2) ** 2, max(1, wanted))
        return Geometry(grid, per_image, train * per_image, backbone.tap_channels[tap])

    def estimate(self) -> Estimate:
        g = self.geometry()
        counts = f"K={self.vocabulary.size}, {g.vectors} vectors x {g.channels}"
        return Estimate(counts, g.vectors * g.channels * 4, self.vocabulary.size * g.channels * 4)

    def build(self, work: Workspace) -> dict[str, Any]:
        per_image = self.geometry().per_image
        shards = shards_of(self.images, "train")
        extract = partial(
            _sample_shard,
            images=self.images,
            net=self.teacher,
            tap=self.vocabulary.tap,
            per_image=per_image,
            seed=self.seed,
            work=work,
        )
        for_each_shard(shards, extract, work.machine, gpu=True)
        source = RaySource([f"{row['name']}.vectors.npy" for row in shards], work)
        board = work.machine.board
        most = self.vocabulary.iterations

        def tell(i: int, inertia: float) -> None:
            if board is not None:
                record = {"epoch": i + 1, "epochs": most, "inertia": inertia}
                board.post.remote({"kind": "iteration", "label": self.label, "key": work.key, **record})

        clusters = kmeans(
            source,
            self.vocabulary.size,
            seed=self.seed,
            init=self.vocabulary.init,
            iterations=most,
            tolerance=self.vocabulary.tolerance,
            on_iteration=tell,
        )
        work.write_npy("centroids.npy", clusters.centroids_KD.numpy())
        work.write_npy("counts.npy", clusters.counts_K.numpy())
        return {
            "size": self.vocabulary.size,
            "tap": self.vocabulary.tap,
            "vectors": len(source),
            "inertia": list(clusters.inertia),
            "splits": clusters.splits,
            "perplexity": perplexity(clusters.counts_K),
        }


def _sample_shard(
    row: Row, images: Artifact, net: Artifact, tap: str, per_image: int, seed: int, work: Workspace
) -> Row:
    name = f"{row['name']}.vectors.npy"
    if not work.scratch.exists(name):
        pixels = torch.from_numpy(pixels_of(images, row))
        vectors = sample_vectors(feature_maps(teacher_of(net), pixels, tap), per_image, seed, row["start"])
        if not torch.isfinite(vectors).all():
            raise ValueError(f"{row['name']}: {net.ref} gives features that are not finite, its training has diverged")
        work.scratch.write_npy(name, vectors.numpy())
    return {"name": name}


class RaySource:
    """Vectors in files, summed per centroid by Ray tasks, one part of the files each.

    A task that dies with its node is run again. The parts do not depend on the number of workers, and their sums are
    added in order, so the centroids do not depend on it either.
    """

    def __init__(self, names: list[str], work: Workspace) -> None:
        import ray

        self._ray = ray
        self._work = work.scratch
        self._parts = [
            tuple(names[i] for i in part) for part in np.array_split(np.arange(len(names)), min(PARTS, len(names)))
        ]
        self._lengths = [sum(len(self._work.read_npy(name)) for name in part) for part in self._parts]
        self._assign: Any = ray.remote(num_cpus=1)(_assign_part)

    def __len__(self) -> int:
        return sum(self._lengths)

    def sample(self, n: int, seed: int) -> Tensor:
        rows = sample_rows(len(self), n, seed)
        starts = np.cumsum([0, *self._lengths])
        picks = [rows[(rows >= a) & (rows < b)] - a for a, b in pairwise(starts)]
        return torch.cat(
            [_vectors.__wrapped__(self._work, part)[pick] for part, pick in zip(self._parts, picks, strict=True)]
        )

    def assign(self, centroids_KD: Tensor) -> Sums:
        ref = self._ray.put(centroids_KD.numpy())
        parts = self._ray.get([self._assign.remote(self._work, part, ref) for part in self._parts])
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


@lru_cache(maxsize=PARTS)
def _vectors(folder: Folder, names: tuple[str, ...]) -> Tensor:
    return torch.from_numpy(np.concatenate([folder.read_npy(name) for name in names]))


def _assign_part(folder: Folder, names: tuple[str, ...], centroids_KD: np.ndarray) -> Sums:
    torch.set_num_threads(1)
    return assign_and_sum(_vectors(folder, names), torch.from_numpy(np.array(centroids_KD)))
