"""voc07_svm: linear SVMs on frozen features of VOC2007, one for each class and tap; AP per class and mAP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.config import Data, Net, Voc07Svm
from bownet.images.augment import to_float
from bownet.images.sources.voc import VocListing
from bownet.images.sources.voc_annotations import Annotations, read_annotations
from bownet.images.views import RESIZE, squashed_view
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone
from evaluation.cards import voc07_svm_card
from evaluation.linear_online import check_unchanged, fingerprint_of
from evaluation.pooling import in_words, pool_map
from evaluation.score import Score
from evaluation.voc07_svm import COSTS, obstacle, presence, score_tap
from pipelines.stages.annotated import voc_path
from pipelines.stages.fan_out import fan_out
from pipelines.stages.images import opened
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import annotations_of, checked, count_of, data_of, row_reader, shards_of
from pipelines.stages.scoring import data_card, write_score
from pipelines.stages.shards import Row, for_each_shard, teacher_of
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace

SPLITS = ("train", "test")
_BATCH = 32  # images at a time: the first maps of a ResNet-50 are large


def voc_data(settings: Voc07Svm, data: Data) -> Data:
    """The images that these SVMs see: trainval and test of VOC2007 as files, from where they are said to be."""
    path = voc_path("voc07_svm", settings.path, data)
    size, bad = settings.image_size, data.max_bad_fraction
    return Data(kind="voc", path=path, voc_train="trainval07", storage="encoded", image_size=size, max_bad_fraction=bad)


@dataclass(frozen=True)
class Voc07SvmScore(ModelStage):
    """`images` are those of `voc_data`."""

    settings: Voc07Svm
    images: Artifact
    net: Artifact
    arch: Net | None = field(default=None, metadata=NOT_IN_KEY)  # of the network, to check taps before it is trained

    name = "voc07-svm"
    title = "VOC07 SVM"
    version = 3

    def config(self) -> dict[str, Any]:
        """Without where the images lie: they are an input."""
        return {**super().config(), "settings": self.settings.model_dump(exclude={"path"})}

    def check(self) -> None:
        """Raise now what would fail after the network's training."""
        if reason := self.obstacle(self.images, self.settings):
            raise ValueError(reason)
        if self.arch is not None:
            with torch.device("meta"):
                self._taps(build_backbone(self.arch, 0))

    @staticmethod
    def obstacle(images: Artifact, settings: Voc07Svm) -> str | None:
        """Why these images cannot be scored so, from their annotations; None if they can."""
        data = data_of(images)
        if data.kind != "voc" or data.is_raw:
            return f"voc07_svm: needs files of VOC, not data.kind={data.kind} with data.storage={data.storage}"
        found = {split: _annotations(data, split) for split in SPLITS}
        for split, read in found.items():
            total = len(read.found) + len(read.unreadable)
            if len(read.unreadable) > data.max_bad_fraction * total:
                return (
                    f"data.path={data.path}: {len(read.unreadable)} of {total} {split} images have no annotation that "
                    f"can be read ({read.unreadable[0]}); unpack Annotations/ there"
                )
            if read.outside:
                more = f", and {len(read.outside) - 1} more files" if len(read.outside) > 1 else ""
                return f"data.path={data.path}: {read.outside[0]}{more}; mend the XML, or take the image off the list"
        classes = opened(data).categories
        train, test = (presence(found[split].found, classes) for split in SPLITS)
        reason = obstacle(train, test, classes, settings.folds)
        return reason and f"voc07_svm: data.path={data.path}: {reason}"

    def estimate(self) -> Estimate:
        train, test = (count_of(self.images, split) for split in SPLITS)
        fits = len(opened(data_of(self.images)).categories) * (
            len(COSTS[self.settings.costs]) * self.settings.folds + 1
        )
        values = 9216 if self.settings.pool == "9k" else 2048
        # in double precision: the features, in the span of the training images, and a worker's copy for its solver
        memory = 8 * (train + test) * (values + 3 * min(values, train))
        taps = len(self.settings.taps) or 5
        return Estimate(f"{train + test} images, {fits} SVMs per tap", memory, taps * (train + test) * values * 4)

    def build(self, work: Workspace) -> dict[str, Any]:
        backbone = teacher_of(self.net)
        taps = self._taps(backbone)
        rows = [row for split in SPLITS for row in shards_of(self.images, split)]
        before = fingerprint_of(backbone)
        extract = partial(_extract, stage=self, taps=taps, work=work, sha256=before)
        for_each_shard(rows, extract, work.machine, self.label, gpu=True)
        classes = self.images.info["categories"]
        train_NC, test_MC = (presence(annotations_of(self.images, split), classes) for split in SPLITS)
        scores: dict[str, Score] = {}
        for tap in taps:
            if not work.scratch.exists(f"{tap}.json"):
                train, test = (self._features(tap, split, work) for split in SPLITS)
                run = fan_out(work.machine, self.label, f"SVMs of {tap},")
                score = score_tap(train, test, train_NC, test_MC, classes, self.settings, run)
                work.scratch.write_json(f"{tap}.json", {"metrics": score.metrics, "details": score.details})
            scores[tap] = Score(**work.scratch.read_json(f"{tap}.json"))
        metrics = {f"{tap}/{name}": value for tap, score in scores.items() for name, value in score.metrics.items()}
        details = {tap: score.details for tap, score in scores.items()}
        data, left_out = data_card(self.images, train="train", test="test"), len(self.images.info["bad"])
        for role, split in (("train", "trainval07"), ("test", "test07")):
            data[role] |= {"split": split, "classes": len(classes)}
        card = voc07_svm_card(self.settings, data, self._pooling(backbone, taps), left_out)
        return {**write_score(work, "voc07_svm", Score(metrics, details), card), "backbone_sha256": before}

    def _taps(self, backbone: Backbone) -> tuple[str, ...]:
        for tap in self.settings.taps:
            if tap not in backbone.tap_channels:
                raise ValueError(f"voc07_svm.taps={tap}: there is no such tap, use {', '.join(backbone.taps)}")
        return self.settings.taps or backbone.taps

    def _pooling(self, backbone: Backbone, taps: Sequence[str]) -> dict[str, str]:
        """What each tap's feature is, in words."""
        size = self.settings.image_size
        said = {}
        for tap, maps in _maps(backbone, np.zeros((1, size, size, 3), np.uint8), taps).items():
            side = maps.shape[2] if maps.ndim > 2 else 0
            said[tap] = in_words(maps.shape[1], side, self.settings.pool)
        return said

    def _features(self, tap: str, split: str, work: Workspace) -> NDArray[np.float32]:
        rows = shards_of(self.images, split)
        return np.concatenate([work.scratch.read_npy(_file(row, tap)) for row in rows])


def _extract(row: Row, stage: Voc07SvmScore, taps: Sequence[str], work: Workspace, sha256: str) -> Row:
    """Write the pooled features of a shard, a file for each tap, if the network is as it was before."""
    if all(work.scratch.exists(_file(row, tap)) for tap in taps):
        return {}
    backbone, read = teacher_of(stage.net), row_reader(stage.images, row["split"])
    size, resize = stage.settings.image_size, round(stage.settings.image_size * RESIZE)
    found: dict[str, list[NDArray[np.float32]]] = {tap: [] for tap in taps}
    for start in range(row["start"], row["stop"], _BATCH):
        rows = np.arange(start, min(start + _BATCH, row["stop"]))
        pixels = read(rows, lambda content, _: checked(squashed_view(content, size, resize)))
        for tap, maps in _maps(backbone, pixels, taps).items():
            found[tap].append(pool_map(maps, stage.settings.pool).flatten(1).float().cpu().numpy())
    check_unchanged(sha256, fingerprint_of(backbone))
    for tap, parts in found.items():
        work.scratch.write_npy(_file(row, tap), np.concatenate(parts))
    return {}


@torch.inference_mode()
def _maps(backbone: Backbone, pixels_NHWC: NDArray[np.uint8], taps: Sequence[str]) -> dict[str, torch.Tensor]:
    device = next(backbone.parameters()).device
    return backbone(to_float(torch.from_numpy(pixels_NHWC).to(device)), taps)


def _file(row: Row, tap: str) -> str:
    return f"{row['name']}.{tap}.npy"


@lru_cache(maxsize=8)
def _annotations(data: Data, split: str) -> Annotations:
    """Read once in a process: a plan asks for every network."""
    listing = opened(data).splits[split]
    assert isinstance(listing, VocListing)
    return read_annotations(listing)
