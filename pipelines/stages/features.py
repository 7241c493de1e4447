"""features: what a frozen network says of every image of every split, for any of its taps, in one pass.

A file `<split>.<tap>.npy` has a row of float32 values for each image: the tap's map, pooled, channels first.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bownet.config import Net
from bownet.images.augment import to_float
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import load_backbone
from bownet.nets.taps import Backbone
from evaluation.linear_online import check_unchanged, fingerprint_of
from evaluation.pooling import Pool, in_words, pool_map, values
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of, names_of, pixels_of
from pipelines.stages.shards import Row, for_each_shard, teacher_of
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Folder, Workspace

SPLITS = ("train", "test", "novel")  # what evaluators use
_PIXELS = 1 << 22  # that go through the network at a time: the maps of all taps are in memory at once


@dataclass(frozen=True)
class Features(ModelStage):
    """The globally pooled feature is always among them; taps are those that are wanted besides. Figures need test
    images only."""

    images: Artifact
    net: Artifact
    arch: Net = field(metadata=NOT_IN_KEY)  # of the net, for checks and estimates; its weights are an input
    taps: tuple[str, ...] = ()
    pool: Pool = "global"
    splits: tuple[str, ...] = SPLITS

    name = "features"
    title = "features"
    version = 2

    def config(self) -> dict[str, Any]:
        """The same features have the same key, however they were asked for."""
        taps = self.wanted()
        fewer = {} if self.splits == SPLITS else {"splits": self.splits}
        return {"taps": taps, "pool": self.pool if len(taps) > 1 else None, **fewer}

    def wanted(self) -> list[str]:
        """In the order of the network; an unknown one is refused."""
        backbone = on_meta(self.arch)
        check_taps(self.arch, self.taps, "taps")
        return [tap for tap in backbone.taps if tap in self.taps or tap == backbone.pooled]

    def check(self) -> None:
        self.wanted()

    def estimate(self) -> Estimate:
        count = sum(count_of(self.images, split) for split in self.splits)
        wide = sum(values(*shape, self.pool) for shape in self.shapes().values())
        at_a_time = data_of(self.images).shard_size * wide * 4
        return Estimate(f"{count} images x {wide} values", at_a_time, count * wide * 4)

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Channels of each tap and the side of its map, 0 for a vector."""
        backbone, size = on_meta(self.arch), data_of(self.images).image_size
        stride = backbone.tap_strides
        return {
            tap: (backbone.tap_channels[tap], -(-size // stride[tap]) if stride[tap] else 0) for tap in self.wanted()
        }

    def build(self, work: Workspace) -> dict[str, Any]:
        shapes = self.shapes()
        shards = [
            row for row in self.images.info["shards"] if row["split"] in self.splits and row["start"] < row["stop"]
        ]
        before = fingerprint_of(load_backbone(self.net.local_path("backbone.safetensors")))
        extract = partial(
            _extract, images=self.images, net=self.net, taps=tuple(shapes), pool=self.pool, work=work, sha256=before
        )
        for_each_shard(shards, extract, work.machine, self.label, gpu=True)
        for split in {row["split"]: None for row in shards}:
            names = [row["name"] for row in shards if row["split"] == split]
            for tap in shapes:
                _join(work.scratch, [f"{name}.{tap}.npy" for name in names], work, f"{split}.{tap}.npy")
        return {
            "pooled": on_meta(self.arch).pooled,
            "pooling": {tap: in_words(*shape, self.pool) for tap, shape in shapes.items()},
            "values": {tap: values(*shape, self.pool) for tap, shape in shapes.items()},
            "backbone_sha256": before,
        }


@lru_cache(maxsize=8)
def on_meta(arch: Net) -> Backbone:
    """A network without weights: names, channels and strides of its taps."""
    with torch.device("meta"):
        return build_backbone(arch, 0)


def check_taps(arch: Net, taps: tuple[str, ...], name: str) -> None:
    """`name` is that of the setting, such as linear.taps."""
    known = on_meta(arch).taps
    for tap in taps:
        if tap not in known:
            raise ValueError(f"{name}={tap!r}: {arch.arch} has {', '.join(known)}")


def read_features(features: Artifact, split: str, tap: str) -> Tensor:
    """[N, values] of a split, memory-mapped where the store is local, and so never to be written to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that it cannot be written to
        return torch.from_numpy(features.read_npy(f"{split}.{tap}.npy"))


def _extract(
    row: Row, images: Artifact, net: Artifact, taps: tuple[str, ...], pool: Pool, work: Workspace, sha256: str
) -> Row:
    """Write the features of a shard, if the network is as it was before."""
    names = {tap: f"{row['name']}.{tap}.npy" for tap in taps}
    if all(work.scratch.exists(name) for name in names.values()):
        return {}
    backbone = teacher_of(net)
    found = pooled_features(backbone, torch.from_numpy(pixels_of(images, row)), taps, pool)
    check_unchanged(sha256, fingerprint_of(backbone))
    for tap, value_ND in found.items():
        finite_N = torch.isfinite(value_ND).all(1)
        if not finite_N.all():
            bad = [n for n, good in zip(names_of(images, row), finite_N.tolist(), strict=True) if not good]
            raise ValueError(
                f"{net.ref}: its features of {len(bad)} images of {row['name']} are not finite ({', '.join(bad[:3])}); "
                "its training has diverged"
            )
        work.scratch.write_npy(names[tap], value_ND.numpy())
    return {}


@torch.inference_mode()
def pooled_features(backbone: Backbone, images_NHWC: Tensor, taps: tuple[str, ...], pool: Pool) -> dict[str, Tensor]:
    """Each tap of stored images, pooled and flattened, on the CPU: {tap: [N, values]}."""
    device = next(backbone.parameters()).device
    made: dict[str, list[Tensor]] = {tap: [] for tap in taps}
    at_a_time = min(250, max(1, _PIXELS // (images_NHWC.shape[1] * images_NHWC.shape[2])))
    for some in images_NHWC.split(at_a_time):
        for tap, found in backbone(to_float(some.to(device)), taps).items():
            made[tap].append(pool_map(found.float(), pool).flatten(1).cpu())
    return {tap: torch.cat(parts) for tap, parts in made.items()}


def _join(parts: Folder, names: list[str], whole: Folder, name: str) -> None:
    """One array of many, through the disk: all of them together may be more than the memory."""
    arrays = [parts.read_npy(part) for part in names]
    shape = (sum(len(array) for array in arrays), *arrays[0].shape[1:])

    def write(path: Path) -> None:
        target = np.lib.format.open_memmap(path, "w+", arrays[0].dtype, shape)
        start = 0
        for array in arrays:
            target[start : start + len(array)] = array
            start += len(array)
        target.flush()

    whole.write_via(name, write)
