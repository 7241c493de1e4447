"""The features stage on a real Ray: every tap of every image, pooled, in one pass, and never more than once."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bownet.config import Net
from bownet.images.augment import to_float
from bownet.nets.checkpoint import load_backbone
from evaluation.linear_online import fingerprint_of
from evaluation.pooling import pool_map
from pipelines.machine import Machine
from pipelines.stages.features import Features, _extract, read_features
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import load_split
from pipelines.stages.shards import teacher_of
from pipelines.stages.teacher import RandomNet, new_backbone
from pipelines.stages.training import write_backbone
from pipelines.store import Artifact, Store, Workspace

NET = Net(arch="wrn-10-1")
TAPS = ("block3", "block1")


class Scratch:
    """A workspace of which only the scratch folder is used."""

    def __init__(self, planned: Artifact) -> None:
        self.scratch = planned.scratch


@pytest.fixture(scope="module")
def store(raw: Artifact, machine: Machine) -> Store:
    return Store(raw.root, machine=machine)


@pytest.fixture(scope="module")
def net(store: Store, raw: Artifact) -> Artifact:
    return store.get(RandomNet(NET, 0, raw, model="random"))


@pytest.fixture(scope="module")
def made(store: Store, raw: Artifact, net: Artifact) -> Artifact:
    return store.get(Features(raw, net, NET, TAPS, "4x4", model="random"))


def test_each_row_is_what_the_network_says_of_that_image(made: Artifact, raw: Artifact, net: Artifact) -> None:
    assert set(made.manifest()["files"]) == {
        f"{split}.{tap}.npy" for split in ("train", "test", "novel") for tap in ("block1", "block3", "pool")
    }
    backbone = teacher_of(net)
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    for split in ("train", "test", "novel"):
        pixels = torch.from_numpy(load_split(raw, split))
        with torch.no_grad():
            maps = backbone(to_float(pixels), ("block1", "block3", "pool"))
        for tap, found in maps.items():
            stored = read_features(made, split, tap)
            assert stored.dtype == torch.float32
            torch.testing.assert_close(stored, pool_map(found, "4x4").flatten(1), atol=1e-5, rtol=1e-4)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())  # frozen


def test_it_tells_what_was_done(made: Artifact, raw: Artifact, net: Artifact) -> None:
    assert made.info == {
        "pooled": "pool",
        "pooling": {
            "block1": "adaptive average pool of 16x16 -> 16x4x4",
            "block3": "adaptive average pool of 4x4 -> 64x4x4",
            "pool": "the network's own global average, 64 values",
        },
        "values": {"block1": 256, "block3": 1024, "pool": 64},
        "backbone_sha256": fingerprint_of(load_backbone(net.local_path("backbone.safetensors"))),
    }
    assert isinstance(made.stage, Features)
    assert made.stage.estimate().disk_bytes == sum(raw.info["counts"].values()) * (256 + 1024 + 64) * 4


def test_the_same_features_have_the_same_key(made: Artifact, store: Store, raw: Artifact, net: Artifact) -> None:
    assert isinstance(made.stage, Features)

    def key(**changes: object) -> str:
        return store.plan(replace(made.stage, **changes)).key  # type: ignore[type-var]

    assert key(taps=("block1", "pool", "block3", "block1"), model="other") == made.key
    assert key(pool="9k") != made.key != key(taps=("block1",))
    assert key(taps=(), pool="9k") == key(taps=("pool",), pool="global")  # there is no map to pool


def test_an_unknown_tap_is_refused_before_anything_runs(raw: Artifact, net: Artifact) -> None:
    with pytest.raises(ValueError, match="taps='conv4': wrn-10-1 has block1, block2, block3, pool"):
        Features(raw, net, NET, ("conv4",), model="random").check()


def test_a_killed_pass_makes_only_what_is_missing(made: Artifact, store: Store, machine: Machine) -> None:
    """Shards of the pass stay in the scratch folder until the whole is there."""
    assert isinstance(made.stage, Features)
    other = replace(made.stage, taps=("block2",))
    planned = store.plan(other)
    expected = read_features(made, "train", "pool").numpy()[30:60] + 1  # as if a killed run had left this shard
    planned.scratch.write_npy("train-00001.pool.npy", expected)
    planned.scratch.write_npy("train-00001.block2.npy", np.zeros((30, 32 * 4 * 4), np.float32))
    built = store.get(other)
    assert np.array_equal(read_features(built, "train", "pool").numpy()[30:60], expected)
    assert not Path(planned.scratch.path()).exists()


@dataclass(frozen=True)
class BrokenNet(ModelStage):
    """A network whose training went wrong unnoticed."""

    images: Artifact

    name = "broken-net"
    title = "network"
    version = 1

    def build(self, work: Workspace) -> dict[str, Any]:
        backbone = new_backbone(NET, 7, self.images)
        backbone.get_parameter("block1.0.conv1.weight").data.fill_(float("nan"))
        write_backbone(backbone, NET, work)
        return {}


def test_features_that_are_not_finite_are_refused(store: Store, raw: Artifact) -> None:
    broken = replace(store.get(BrokenNet(raw, model="broken")), stage=None)  # workers do not know this file
    with pytest.raises(Exception, match=r"broken-net/\w+: its features of 30 images of train-0000\d are not finite"):
        store.get(Features(raw, broken, NET, model="broken"))


def test_a_network_that_has_moved_gives_no_features(store: Store, raw: Artifact, net: Artifact) -> None:
    planned = store.plan(Features(raw, net, NET, ("block2",), model="random"))
    backbone = teacher_of(net)
    before = fingerprint_of(backbone)
    row = raw.info["shards"][0]
    with torch.no_grad():
        next(backbone.parameters()).add_(1e-6)
    try:
        with pytest.raises(RuntimeError, match="the frozen network has changed"):
            _extract(row, raw, net, ("block2",), "global", Scratch(planned), before)  # type: ignore[arg-type]
    finally:
        teacher_of.cache_clear()
    assert not planned.scratch.exists(f"{row['name']}.block2.npy")
