"""Networks from files into the store, and from the store to other programs, as people type it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import load_backbone, save_backbone
from bownet.nets.importing import load_weights
from pipelines.export import main
from pipelines.plan import Plan
from pipelines.stages.checkpoint import CheckpointNet
from pipelines.store import Stage, Store, Workspace

ROOT = Path(__file__).parents[2]
RESNET = Net(arch="resnet18")


@dataclass(frozen=True)
class Text(Stage):
    text: str
    name = "text"
    version = 1

    def build(self, work: Workspace) -> dict[str, Any]:
        work.write_bytes("text", self.text.encode())
        return {}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What MoCo v2 saves, with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        state = torchvision.models.resnet18(weights=None).state_dict()
    path = tmp_path_factory.mktemp("weights") / "moco.pth.tar"
    torch.save({"epoch": 1, "state_dict": {f"module.encoder_q.{k}": v for k, v in state.items()}}, path)
    return path


def checkpoint(path: Path, net: Net = RESNET) -> CheckpointNet:
    return CheckpointNet(net, str(path), model="checkpoint")


def test_a_file_becomes_an_artifact_once(weights: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    stage = checkpoint(weights)
    made = store.get(stage)
    net = load_backbone(made.local_path("backbone.safetensors"))
    expected, report = load_weights(weights, RESNET)
    assert all(
        torch.equal(a, b) for a, b in zip(net.state_dict().values(), expected.state_dict().values(), strict=True)
    )
    assert made.info["report"] == report.lines()
    assert made.info["file"] == "moco.pth.tar"
    remark = stage.remark(made)
    assert remark is not None
    assert remark.startswith(
        "moco.pth.tar: 120 tensors from state_dict: module.encoder_q.*; input statistics: ImageNet's"
    )
    assert "\n" not in remark

    shutil.copy(weights, tmp_path / "other_name.pth")  # the content is the key
    assert store.get(checkpoint(tmp_path / "other_name.pth")) == made
    assert [event.cached for event in store.events] == [False, True]


def test_another_content_or_architecture_is_another_artifact(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "net.pt"
    keys = set()
    for seed in (0, 1):
        torch.save(build_backbone(Net(arch="wrn-10-1"), seed).state_dict(), path)
        keys |= {store.plan(checkpoint(path, Net(arch=arch))).key for arch in ("wrn-10-1", "wrn-10-2")}
    assert len(keys) == 4


def test_an_interrupted_build_is_taken_up_again(weights: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    artifact = store.plan(checkpoint(weights))
    folder = Path(artifact.folder.path())
    folder.mkdir(parents=True)
    (folder / "backbone.safetensors").write_bytes(b"half")
    load_backbone(store.get(checkpoint(weights)).local_path("backbone.safetensors"))


@pytest.mark.parametrize(
    ("name", "arch", "said"),
    [
        ("absent.pth", "resnet18", "absent.pth: there is no such file on this machine; name another"),
        ("moco.pth.tar", "resnet50", "looks like a resnet18; use --teacher.arch resnet18"),
        ("moco.pth.tar", "wrn-10-1", "looks like a resnet18; use --teacher.arch resnet18"),
        ("junk.pth", "resnet18", "cannot be read as weights"),
    ],
)
def test_a_plan_refuses_what_would_not_load(name: str, arch: str, said: str, weights: Path, tmp_path: Path) -> None:
    (weights.parent / "junk.pth").write_bytes(b"junk")
    path = weights.parent / name
    with pytest.raises(ValueError, match=r"^teacher\.weights=") as caught:
        Plan(Store(tmp_path / "store")).get(checkpoint(path, Net(arch=arch)))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_a_plan_knows_size_and_state(weights: Path, tmp_path: Path) -> None:
    plan = Plan(Store(tmp_path / "store"))
    plan.get(checkpoint(weights))
    (step,) = plan.steps
    assert (step.cached, step.estimate.disk_bytes) == (False, weights.stat().st_size)
    assert step.stage.label == "checkpoint: network"


@pytest.fixture(scope="module")
def store(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("export") / "store")
    store.get(checkpoint(weights))
    path = tmp_path_factory.mktemp("wide") / "wrn.safetensors"
    save_backbone(build_backbone(Net(arch="wrn-10-1"), 0), Net(arch="wrn-10-1"), path, {})
    store.get(checkpoint(path, Net(arch="wrn-10-1")))
    store.get(Text("no network"))
    return store


def keys(store: Store) -> tuple[str, str]:
    resnet, wide = (event.key for event in store.events[:2])
    return resnet, wide


def test_export_of_an_artifact(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "net.pth"
    for name in (keys(store)[0], keys(store)[0][:6], f"checkpoint-net/{keys(store)[0]}"):
        assert main(["--key", name, "--store", store.root, "--format", "torchvision", "--out", str(out)]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed == [
            f"{out}: resnet18 for torchvision, described in {out}.json",
            "input: RGB in [0, 1], mean [0.485, 0.456, 0.406], std [0.229, 0.224, 0.225]",
            "scaled by: you",
            "load: net = torchvision.models.resnet18(); net.fc = torch.nn.Identity(); "
            'net.load_state_dict(torch.load("net.pth"))',
            "gives: 512 pooled features; the file has no fc, strict=False leaves fc as it is",
        ]
    about = json.loads((tmp_path / "net.pth.json").read_text())
    assert about["from"] == {"key": keys(store)[0], "stage": "checkpoint-net"}
    assert about["input"]["mean"] == [0.485, 0.456, 0.406]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.pth", "net.pth.json"]
    net = torchvision.models.resnet18(weights=None)
    assert net.load_state_dict(torch.load(out), strict=False).missing_keys == ["fc.weight", "fc.bias"]


def test_export_of_a_file_and_back(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = build_backbone(Net(arch="wrn-10-1"), 3)
    net.set_input_statistics((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    save_backbone(net, Net(arch="wrn-10-1"), tmp_path / "in.safetensors", {})
    command = ["--weights", str(tmp_path / "in.safetensors"), "--format", "safetensors"]
    assert main([*command, "--out", str(tmp_path / "out.safetensors")]) == 0
    assert "mean [0.1, 0.2, 0.3], std [0.4, 0.5, 0.6]" in capsys.readouterr().out
    back, report = load_weights(tmp_path / "out.safetensors", Net(arch="wrn-10-1"))
    assert report.own_statistics
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), back.state_dict().values(), strict=True))


def test_detectron2_prints_its_config(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "d2.pth")
    assert main(["--key", keys(store)[0], "--store", store.root, "--format", "detectron2", "--out", out]) == 0
    printed = capsys.readouterr().out
    assert "  MODEL.PIXEL_MEAN: [123.675, 116.28, 103.53]\n" in printed
    assert "  MODEL.PIXEL_STD: [58.395, 57.12, 57.375]\n" in printed
    assert "  INPUT.FORMAT: RGB\n" in printed


def test_refusals_are_one_line(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resnet, wide = keys(store)
    here, out = ["--store", store.root], str(tmp_path / "a.pth")
    torchvision_format = ["--format", "torchvision"]
    cases: list[tuple[list[str], str]] = [
        (["--key", wide, *here, *torchvision_format, "--out", out], "not wrn-10-1; use one of safetensors, onnx"),
        (["--key", resnet, *here, "--format", "caffe", "--out", out], "format=caffe: unknown; there are torchvision,"),
        (["--key", resnet, *here, *torchvision_format, "--out", "a.pkl"], "out=a.pkl: torchvision is written as .pth"),
        (
            ["--key", "nosuch", *here, *torchvision_format, "--out", out],
            f"key=nosuch: no such artifact in {store.root}",
        ),
        (
            ["--key", store.events[2].key, *here, *torchvision_format, "--out", out],
            "is no finished network; networks are ",
        ),
        (["--key", "", *here, *torchvision_format, "--out", out], "give more digits"),
        (["--key", resnet, "--store", str(tmp_path / "no"), *torchvision_format, "--out", out], "no such store"),
        (["--key", resnet, *here, *torchvision_format, "--out", str(tmp_path / "no" / "a.pth")], "folder that exists"),
        (["--weights", str(tmp_path / "no"), *torchvision_format, "--out", out], "cannot be read as safetensors"),
    ]
    for arguments, said in cases:
        assert main(arguments) == 2, arguments
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("error: ")
        assert printed.err.count("\n") == 1
        assert said in printed.err
    assert not list(tmp_path.iterdir())


def test_as_a_program(store: Store, tmp_path: Path) -> None:
    arguments = ["--key", keys(store)[0], "--format", "timm", "--out", str(tmp_path / "net.safetensors")]
    command = [sys.executable, str(ROOT / "pipelines" / "export.py"), *arguments]
    environment = os.environ | {"BOWNET_STORE": store.root, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'timm.create_model("resnet18", num_classes=0, checkpoint_path="net.safetensors")' in done.stdout
