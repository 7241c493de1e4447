"""vocabulary: sampled feature vectors of the frozen teacher are clustered into K visual words (equation 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bownet.config import Net, Vocabulary
from bownet.nets.build import build_backbone
from bownet.words.kmeans import Sums, assign_and_sum, kmeans, sample_rows
from bownet.words.vocabulary import feature_maps, perplexity, sample_vectors
from pipelines.machine import Machine
from pipelines.stages.images import data_of
from pipelines.stages.shards import Row, for_each_shard, teacher_of
from pipelines.store import Artifact, Estimate, Stage, Workspace


class Geometry(NamedTuple):
    """How many vectors there are."""

    grid: int  # positions along a side of the feature map, border included
    per_image: int  # vectors that are sampled of each image
    vectors: int
    channels: int


@dataclass(frozen=True)
class BuildVocabulary(Stage):
    vocabulary: Vocabulary
    seed: int
    images: Artifact
    teacher: Artifact
    net: Net  # of the teacher, for checks and estimates; its weights are an input
    model: str

    name = "vocabulary"
    version = 1

    @property
    def label(self) -> str:
        return f"{self.model}: vocabulary"

    def config(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary, "seed": self.seed}

    def inputs(self) -> dict[str, Artifact]:
        return {"images": self.images, "teacher": self.teacher}

    def check(self) -> None:
        """Raise now what would fail after the teacher's training."""
        vectors = self.geometry().vectors
        if self.vocabulary.size > vectors:
            raise ValueError(
                f"vocabulary.size={self.vocabulary.size}: {data_of(self.images).train} images give {vectors} vectors "
                f"of {self.vocabulary.tap}, use 2..{vectors}"
            )

    def geometry(self) -> Geometry:
        data, tap = data_of(self.images), self.vocabulary.tap
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
        wanted = math.ceil(self.vocabulary.size * self.vocabulary.max_points_per_word / data.train)
        per_image = min((grid - 2) ** 2, max(1, wanted))
        return Geometry(grid, per_image, data.train * per_image, backbone.tap_channels[tap])

    def estimate(self) -> Estimate:
        g = self.geometry()
        counts = f"K={self.vocabulary.size}, {g.vectors} vectors x {g.channels}"
        return Estimate(counts, g.vectors * g.channels * 4, self.vocabulary.size * g.channels * 4)

    def build(self, work: Workspace) -> dict[str, Any]:
        per_image = self.geometry().per_image
        shards = [row for row in self.images.info["shards"] if row["split"] == "train"]
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
        pixels = torch.from_numpy(np.array(images.read_npy(f"{row['name']}.images.npy")))
        vectors = sample_vectors(feature_maps(teacher_of(net), pixels, tap), per_image, seed, row["start"])
        if not torch.isfinite(vectors).all():
            raise ValueError(f"{row['name']}: {net.ref} gives features that are not finite, its training has diverged")
        work.scratch.write_npy(name, vectors.numpy())
    return {"name": name}


class RaySource:
    """Vectors held by Ray workers: each has some of the files in memory and sums them per centroid.

    The split into workers does not change the sample, and the sums are added in the order of the workers.
    """

    def __init__(self, names: list[str], work: Workspace) -> None:
        import ray

        machine: Machine = work.machine
        workers = max(1, min(machine.cpus, len(names)))
        parts = np.array_split(np.arange(len(names)), workers)
        holder: Any = ray.remote(num_cpus=1)(_Holder)
        self._ray = ray
        self._holders: list[Any] = [holder.remote(work, [names[i] for i in part]) for part in parts]
        self._lengths = ray.get([h.length.remote() for h in self._holders])

    def __len__(self) -> int:
        return int(sum(self._lengths))

    def sample(self, n: int, seed: int) -> Tensor:
        rows = sample_rows(len(self), n, seed)
        starts = np.cumsum([0, *self._lengths])
        picks = [rows[(rows >= a) & (rows < b)] - a for a, b in pairwise(starts)]
        parts = [h.take.remote(p.numpy()) for h, p in zip(self._holders, picks, strict=True)]
        return torch.from_numpy(np.concatenate(self._ray.get(parts)))

    def assign(self, centroids_KD: Tensor) -> Sums:
        ref = self._ray.put(centroids_KD.numpy())
        parts = self._ray.get([h.assign.remote(ref) for h in self._holders])
        total = Sums(*parts[0])
        for part in parts[1:]:
            total = total + Sums(*part)
        return total


class _Holder:
    def __init__(self, work: Workspace, names: list[str]) -> None:
        torch.set_num_threads(1)
        self.x_ND = torch.from_numpy(np.concatenate([work.scratch.read_npy(name) for name in names]))

    def length(self) -> int:
        return len(self.x_ND)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.x_ND[torch.from_numpy(rows)].numpy()

    def assign(self, centroids_KD: np.ndarray) -> tuple[Tensor, Tensor, float]:
        sums = assign_and_sum(self.x_ND, torch.from_numpy(np.array(centroids_KD)))
        return sums.counts_K, sums.sums_KD, sums.inertia
