"""words: every training image as visual words, uint16 [N, views, h, w], border included (equation 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.words.vocabulary import feature_maps, perplexity, words_of
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of, pixels_of, shards_of
from pipelines.stages.shards import Row, for_each_shard, teacher_of
from pipelines.stages.vocabulary import BuildVocabulary
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class Quantize(ModelStage):
    images: Artifact
    teacher: Artifact
    vocabulary: Artifact

    name = "words"
    title = "words"
    version = 1

    def estimate(self) -> Estimate:
        assert isinstance(self.vocabulary.stage, BuildVocabulary)
        data, train = data_of(self.images), count_of(self.images, "train")
        positions = self.vocabulary.stage.geometry().grid ** 2
        counts = f"{train} images x {positions} words"
        return Estimate(counts, data.shard_size * positions * 512, train * positions * 2)

    def build(self, work: Workspace) -> dict[str, Any]:
        shards = shards_of(self.images, "train")
        tap = self.vocabulary.info["tap"]
        size = self.vocabulary.info["size"]
        quantize = partial(
            _quantize_shard, images=self.images, net=self.teacher, vocabulary=self.vocabulary, tap=tap, work=work
        )
        done = for_each_shard(shards, quantize, work.machine, gpu=True)
        counts = np.sum([np.bincount(work.read_npy(row["name"]).ravel(), minlength=size) for row in done], 0)
        return {
            "shards": [row["name"] for row in done],
            "shape": list(work.read_npy(done[0]["name"]).shape[1:]),
            "size": size,
            "perplexity": perplexity(torch.as_tensor(counts)),
            "unused": int((counts == 0).sum()),
        }


def _quantize_shard(row: Row, images: Artifact, net: Artifact, vocabulary: Artifact, tap: str, work: Workspace) -> Row:
    name = f"{row['name']}.words.npy"
    if not work.exists(name):
        pixels = torch.from_numpy(pixels_of(images, row))
        centroids = torch.from_numpy(np.array(vocabulary.read_npy("centroids.npy")))
        work.write_npy(name, words_of(feature_maps(teacher_of(net), pixels, tap), centroids)[:, None])
    return {"name": name}


def load_words(words: Artifact) -> NDArray[np.uint16]:
    return np.concatenate([words.read_npy(name) for name in words.info["shards"]])
