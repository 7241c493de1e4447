"""words: each training image as visual words, uint16 [N, views, h, w], border included (equation 1); their health."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.words.health import health, word_stats, words_and_labels, words_and_words
from pipelines.stages.maps import maps_of, memory_of_maps
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of, pixels_of, shard_labels, shards_of
from pipelines.stages.shards import Row, for_each_shard, require_files
from pipelines.stages.signed import signed
from pipelines.stages.vocabulary import BuildVocabulary, vocabulary_of
from pipelines.store import Artifact, Estimate, Workspace


@dataclass(frozen=True)
class Quantize(ModelStage):
    images: Artifact
    teacher: Artifact
    vocabulary: Artifact
    flip: bool = False  # a second view: the words of the mirrored image
    previous: Artifact | None = None  # words of the round before, to see how far they have moved

    name = "words"
    title = "words"
    version = 2

    def estimate(self) -> Estimate:
        assert isinstance(self.vocabulary.stage, BuildVocabulary)
        data, train = data_of(self.images), count_of(self.images, "train")
        positions = self.vocabulary.stage.geometry().grid ** 2 * (1 + self.flip)
        memory = memory_of_maps(self.vocabulary.stage.net, data.image_size, data.shard_size)
        return Estimate(f"{train} images x {positions} words", memory, train * positions * 2)

    def build(self, work: Workspace) -> dict[str, Any]:
        from pipelines.drawing.health import draw_health  # here, so that workers need not import matplotlib
        from pipelines.drawing.save import save_png

        vocabulary_of(self.vocabulary).require_teacher(self.teacher.key, self.vocabulary.info["tap"])
        done = for_each_shard(
            shards_of(self.images, "train"),
            partial(_quantize_shard, stage=self, work=work),
            work.machine,
            self.label,
            gpu=True,
        )
        require_files(work, [row["name"] for row in done])
        found = health(
            reduce(add, [row["stats"] for row in done]),
            inertia=self.vocabulary.info["inertia"],
            labels=_total([row["labels"] for row in done]),
            drift=_total([row["drift"] for row in done]),
        )
        work.write_json("health.json", found.to_json())
        work.write_via("health.png", partial(save_png, signed(draw_health(found, self.model), self.images)))
        return {
            "shards": [row["name"] for row in done],
            "shape": list(work.read_npy(done[0]["name"]).shape[1:]),
            "size": self.vocabulary.info["size"],
            "health": found.metrics(),
            "warnings": list(found.warnings),
            "figures": ["health.png"],
        }

    def remark(self, artifact: Artifact) -> str | None:
        return "; ".join(artifact.info["warnings"]) or None


def _total(parts: list[Any]) -> Any:
    return None if any(part is None for part in parts) else reduce(add, parts)


def _quantize_shard(row: Row, stage: Quantize, work: Workspace) -> Row:
    name = f"{row['name']}.words.npy"
    if not work.exists(name):
        work.write_npy(name, _words(row, stage))
    words, size = work.read_npy(name), stage.vocabulary.info["size"]
    labels, before = shard_labels(stage.images, row), _previous(row, stage)
    return {
        "name": name,
        "stats": word_stats(words, size),
        "labels": None if labels is None else words_and_labels(words, labels, len(stage.images.info["categories"])),
        "drift": None if before is None or before.shape != words.shape else words_and_words(before, words, size),
    }


def _words(row: Row, stage: Quantize) -> NDArray[np.uint16]:
    vocabulary = vocabulary_of(stage.vocabulary)
    pixels = torch.from_numpy(pixels_of(stage.images, row))
    views = []
    for view in (pixels, pixels.flip(2)) if stage.flip else (pixels,):
        parts = maps_of(stage.teacher, stage.images, row, view, vocabulary.tap)
        views.append(np.concatenate([vocabulary.assign(maps).numpy().astype(np.uint16) for _, maps in parts]))
    return np.stack(views, 1)


def _previous(row: Row, stage: Quantize) -> NDArray[np.uint16] | None:
    return None if stage.previous is None else stage.previous.read_npy(f"{row['name']}.words.npy")


def load_words(words: Artifact) -> NDArray[np.uint16]:
    return np.concatenate([words.read_npy(name) for name in words.info["shards"]])
