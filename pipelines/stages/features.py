"""features: the pooled feature vector of every image of every split, by a frozen network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from bownet.words.vocabulary import feature_maps
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, pixels_of
from pipelines.stages.shards import Row, for_each_shard, teacher_of
from pipelines.store import Artifact, Estimate, Workspace

SPLITS = ("train", "test", "novel")  # what evaluators use


@dataclass(frozen=True)
class Features(ModelStage):
    images: Artifact
    net: Artifact

    name = "features"
    title = "features"
    version = 1

    def estimate(self) -> Estimate:
        return Estimate(f"{sum(count_of(self.images, split) for split in SPLITS)} images")

    def build(self, work: Workspace) -> dict[str, Any]:
        shards = [row for row in self.images.info["shards"] if row["split"] in SPLITS]
        extract = partial(_extract, images=self.images, net=self.net, work=work)
        done = for_each_shard(shards, extract, work.machine, self.label, gpu=True)
        for split in {row["split"]: None for row in shards}:
            of_split = [r["name"] for r, s in zip(done, shards, strict=True) if s["split"] == split]
            work.write_npy(f"{split}.npy", np.concatenate([work.scratch.read_npy(name) for name in of_split]))
        return {"channels": int(work.read_npy("train.npy").shape[1])}


def _extract(row: Row, images: Artifact, net: Artifact, work: Workspace) -> Row:
    name = f"{row['name']}.features.npy"
    if not work.scratch.exists(name):
        pixels = torch.from_numpy(pixels_of(images, row))
        backbone = teacher_of(net)
        work.scratch.write_npy(name, feature_maps(backbone, pixels, backbone.pooled).numpy())
    return {"name": name}
