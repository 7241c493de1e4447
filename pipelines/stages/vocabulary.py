"""vocabulary: sampled feature vectors of the frozen teacher are clustered into K visual words (equation 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch

from bownet.config import Net, Vocabulary
from bownet.words.vocabulary import perplexity, sample_vectors
from bownet.words.vocabulary_file import Vocabulary as VocabularyFile
from pipelines.stages.clustering import Vectors, cluster_vectors
from pipelines.stages.features import on_meta
from pipelines.stages.maps import map_side, maps_of, memory_of_maps
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of, pixels_of, shards_of
from pipelines.stages.shards import Row, for_each_shard, require_files
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace

FILE = "vocabulary.safetensors"


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
    version = 2

    def config(self) -> dict[str, Any]:
        """Without what only later stages look at."""
        made = {**super().config(), "vocabulary": self.vocabulary.model_dump(exclude={"flip", "min_perplexity"})}
        size, tap = data_of(self.images).image_size, self.vocabulary.tap
        if size % (on_meta(self.net).tap_strides.get(tap) or 1):  # once, such a map was taken for a smaller one
            made["map_side"] = map_side(self.net, tap, size)
        return made

    def check(self) -> None:
        """Raise now what would fail after the teacher's training."""
        vectors, images = self.geometry().vectors, count_of(self.images, "train")
        if self.vocabulary.size > vectors:
            raise ValueError(
                f"vocabulary.size={self.vocabulary.size}: {images} images give {vectors} vectors "
                f"of {self.vocabulary.tap}, use 2..{vectors}"
            )
        if self.vocabulary.pca is not None and self.vocabulary.pca > self.geometry().channels:
            raise ValueError(
                f"vocabulary.pca={self.vocabulary.pca}: {self.vocabulary.tap} has {self.geometry().channels} channels, "
                f"use 1..{self.geometry().channels}"
            )

    def geometry(self) -> Geometry:
        data, train, tap = data_of(self.images), count_of(self.images, "train"), self.vocabulary.tap
        backbone = on_meta(self.net)
        if tap not in backbone.tap_channels:
            raise ValueError(f"vocabulary.tap={tap!r}: {self.net.arch} has {', '.join(backbone.taps[:-1])}")
        grid = map_side(self.net, tap, data.image_size)
        if grid < 3:
            raise ValueError(
                f"vocabulary.tap={tap!r}: its map of {data.image_size}-pixel images is {grid}x{grid}, without inner "
                "positions; use an earlier tap or larger images"
            )
        most, inner = self.vocabulary.max_points_per_word, (grid - 2) ** 2
        wanted = inner if most is None else math.ceil(self.vocabulary.size * most / max(1, train))
        per_image = min(inner, max(1, wanted))
        return Geometry(grid, per_image, train * per_image, backbone.tap_channels[tap])

    def estimate(self) -> Estimate:
        g, data = self.geometry(), data_of(self.images)
        counts = f"K={self.vocabulary.size}, {g.vectors} vectors x {g.channels}"
        sampled = data.shard_size * g.per_image * g.channels * 4 * 2  # of a shard: its parts, then all together
        sampling = memory_of_maps(self.net, data.image_size, data.shard_size) + sampled
        memory = max(sampling, g.vectors * g.channels * 4)
        return Estimate(counts, memory, self.vocabulary.size * g.channels * 4)

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
        sampled = for_each_shard(shards, extract, work.machine, self.label, gpu=True)
        require_files(work.scratch, [row["name"] for row in sampled])
        vectors = Vectors(
            work.scratch,
            tuple(row["name"] for row in sampled),
            tuple(row["vectors"] for row in sampled),
            self.geometry().channels,
        )
        board = work.machine.board

        def tell(i: int, inertia: float) -> None:
            if board is not None:
                record = {"epoch": i + 1, "epochs": self.vocabulary.iterations, "inertia": inertia}
                board.post.remote({"kind": "iteration", "label": self.label, "key": work.key, **record})

        clusters, pca = cluster_vectors(vectors, self.vocabulary, self.seed, work.machine, work.scratch, tell)
        about = {
            "size": self.vocabulary.size,
            "tap": self.vocabulary.tap,
            "vectors": len(vectors),
            "inertia": list(clusters.inertia),
            "splits": clusters.splits,
            "perplexity": perplexity(clusters.counts_K),
            "pca_explained": pca.explained if pca else None,
        }
        data = {
            "images": self.images.key,
            "mean": self.images.info["mean"],
            "std": self.images.info["std"],
        }
        file = VocabularyFile(clusters.centroids_KD, self.teacher.key, self.vocabulary.tap, pca, about | data)
        work.write_via(FILE, file.save)
        work.write_npy("counts.npy", clusters.counts_K.numpy())
        return about


@lru_cache(maxsize=2)
def vocabulary_of(vocabulary: Artifact) -> VocabularyFile:
    """The words of an artifact, loaded once per worker process."""
    return VocabularyFile.load(vocabulary.local_path(FILE))


def _sample_shard(
    row: Row, images: Artifact, net: Artifact, tap: str, per_image: int, seed: int, work: Workspace
) -> Row:
    name = f"{row['name']}.vectors.npy"
    if not work.scratch.exists(name):
        pixels = torch.from_numpy(pixels_of(images, row))
        vectors = [
            sample_vectors(maps, per_image, seed, row["start"] + first)
            for first, maps in maps_of(net, images, row, pixels, tap)
        ]
        work.scratch.write_npy(name, torch.cat(vectors).numpy())
    return {"name": name, "vectors": row["stop"] * per_image - row["start"] * per_image}
