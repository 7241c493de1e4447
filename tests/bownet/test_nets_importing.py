"""Weights of others: every layout gives the features of the net it was made from, and every misfit one line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import save_backbone
from bownet.nets.importing import IMAGENET_MEAN, IMAGENET_STD, Report, arch_of_file, load_weights

State = dict[str, Tensor]


def resnet(name: str, seed: int) -> nn.Module:
    """torchvision's net with statistics other than 0 and 1, so that they are seen to travel."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = getattr(torchvision.models, name)(weights=None).eval()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
    return net


@pytest.fixture(scope="module")
def state() -> State:
    return resnet("resnet18", 1).state_dict()


@pytest.fixture(scope="module")
def other() -> State:
    return resnet("resnet18", 2).state_dict()


def body(state: State) -> State:
    return {k: v for k, v in state.items() if not k.startswith("fc.")}


def put(prefix: str, state: State) -> State:
    return {prefix + k: v for k, v in state.items()}


LAYOUTS: dict[str, Callable[[State, State], Any]] = {
    "torchvision": lambda s, o: s,
    "timm": lambda s, o: {"arch": "resnet18", "state_dict": s, "args": argparse.Namespace(lr=0.1), "epoch": 3},
    "timm ema": lambda s, o: {"state_dict": o, "state_dict_ema": s},
    "module": lambda s, o: {"state_dict": put("module.", s)},
    "moco v2": lambda s, o: {
        "epoch": 200,
        "state_dict": put("module.encoder_q.", body(s) | {"fc.0.weight": torch.zeros(2, 2)})
        | put("module.encoder_k.", o)
        | {"module.queue": torch.zeros(2, 3), "module.queue_ptr": torch.zeros(1)},
        "optimizer": {"state": {0: {"momentum_buffer": torch.zeros(1)}}, "param_groups": [{"lr": 0.03}]},
    },
    "moco v3": lambda s, o: {
        "state_dict": put("module.base_encoder.", body(s) | {"fc.0.weight": torch.zeros(2, 2)})
        | put("module.momentum_encoder.", o)
        | {"module.predictor.0.weight": torch.zeros(2, 2)}
    },
    "momentum encoder alone": lambda s, o: {"state_dict": put("module.momentum_encoder.", s)},
    "dino": lambda s, o: {
        "student": put("module.backbone.", body(o)) | {"module.head.mlp.0.weight": torch.zeros(2, 2)},
        "teacher": put("backbone.", body(s)) | {"head.last_layer.weight_g": torch.zeros(2, 1)},
        "args": argparse.Namespace(arch="resnet18"),
    },
    "dino student alone": lambda s, o: {"student": put("module.backbone.", body(s))},
    "swav": lambda s, o: put(
        "module.",
        body(s) | {"projection_head.0.weight": torch.zeros(2, 2), "prototypes.weight": torch.zeros(3, 2)},
    ),
    "vissl": lambda s, o: {
        "phase": 199,
        "classy_state_dict": {
            "base_model": {
                "model": {
                    "trunk": put("_feature_blocks.", body(s)),
                    "heads": {"0.clf.0.weight": torch.zeros(2, 2), "0.clf.0.bias": torch.zeros(2)},
                },
                "meta": {"input_shape": [3, 224, 224]},
            },
            "optimizer": {"optim": {"state": {0: {"momentum_buffer": torch.zeros(1)}}}},
            "train_phase_idx": 199,
        },
    },
    "vissl flat": lambda s, o: (
        put("classy_state_dict.base_model.model.trunk._feature_blocks.", body(s))
        | {"classy_state_dict.base_model.model.heads.0.clf.0.weight": torch.zeros(2, 2)}
    ),
    "vissl converted": lambda s, o: {"model": put("trunk.base_model._feature_blocks.", body(s))},
    "vissl with a momentum teacher": lambda s, o: {
        "classy_state_dict": {
            "base_model": {"model": {"trunk": put("_feature_blocks.", body(s))}},
            "loss": put("momentum_encoder.", body(o)),
        }
    },
    "mmselfsup": lambda s, o: {
        "meta": {"epoch": 200, "mmcls_version": "0.21.0"},
        "state_dict": put("backbone.", body(s)) | {"head.fc.weight": torch.zeros(2, 2)},
    },
    "mmselfsup with a momentum net": lambda s, o: {
        "state_dict": put("backbone.", body(s))
        | put("target_net.0.", body(o))
        | put("neck.", {"fc0.weight": torch.ones(1)})
    },
    "anything": lambda s, o: {"classy": {"trunk": put("_feature_blocks.", body(s))}},
}


def features(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net.eval()(x, ("pool5",))["pool5"]


def images() -> Tensor:
    return torch.rand(2, 3, 64, 64, generator=Generator().manual_seed(0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_net(layout: str, state: State, other: State, tmp_path: Path) -> None:
    file = tmp_path / ("net.torch" if layout.startswith("vissl") else "net.pth.tar")  # as their authors name them
    torch.save(LAYOUTS[layout](state, other), file)
    net, report = load_weights(file, Net(arch="resnet18"))
    assert report.loaded == len(body(state)) == 120
    assert not report.own_statistics
    assert not report.unexpected
    for name, value in body(state).items():
        assert torch.equal(net.state_dict()[name], value), name

    theirs = resnet("resnet18", 1)
    theirs.fc = nn.Identity()
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    with torch.no_grad():
        expected = theirs.to(memory_format=torch.channels_last)(
            ((images() - mean) / std).contiguous(memory_format=torch.channels_last)
        )
    torch.testing.assert_close(features(net, images()), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_and_shapes_tell_the_architecture(layout: str, state: State, other: State, tmp_path: Path) -> None:
    torch.save(LAYOUTS[layout](state, other), tmp_path / "net.pth")
    assert arch_of_file(tmp_path / "net.pth") == ("resnet18", False)


def test_the_architecture_of_other_files(tmp_path: Path) -> None:
    net = Net(arch="wrn-10-2")
    backbone = build_backbone(net, 0)
    save_backbone(backbone, net, tmp_path / "ours.safetensors", {})
    assert arch_of_file(tmp_path / "ours.safetensors") == ("wrn-10-2", True)
    torch.save(backbone.state_dict(), tmp_path / "plain.pt")
    assert arch_of_file(tmp_path / "plain.pt") == ("wrn-10-2", False)
    torch.save({"encoder.weight": torch.zeros(2)}, tmp_path / "odd.pt")
    assert arch_of_file(tmp_path / "odd.pt") == (None, False)


def test_the_report_counts_what_was_left(state: State, other: State, tmp_path: Path) -> None:
    def report(layout: str) -> Report:
        torch.save(LAYOUTS[layout](state, other), tmp_path / "a.pth")
        return load_weights(tmp_path / "a.pth", Net(arch="resnet18"))[1]

    assert report("moco v2").lines() == [
        "a.pth: 120 tensors from state_dict: module.encoder_q.*; input statistics: ImageNet's "
        "(mean (0.485, 0.456, 0.406), std (0.229, 0.224, 0.225))",
        "other nets in the file: 1 (state_dict: module.encoder_k.*)",
        "left out: 3 (module.encoder_q.fc.0.weight, module.queue, module.queue_ptr)",
    ]
    assert report("torchvision").lines()[1:] == ["left out: 2 (fc.weight, fc.bias)"]
    assert report("dino").place == "teacher: backbone.*"
    assert report("dino").other_nets == ("student: module.backbone.*",)
    assert report("swav").left_out == ("module.projection_head.0.weight", "module.prototypes.weight")

    bare = {k: v.half() if v.is_floating_point() else v for k, v in state.items() if "num_batches" not in k}
    torch.save(bare | {"extra.weight": torch.zeros(1)}, tmp_path / "a.pth")
    assert load_weights(tmp_path / "a.pth", Net(arch="resnet18"))[1].lines()[1:] == [
        "converted from float16 to float32",
        "left out: 2 (fc.weight, fc.bias)",
        "unexpected, not used: 1 (extra.weight)",
        "missing, not needed: 20 (bn1.num_batches_tracked, layer1.0.bn1.num_batches_tracked, "
        "layer1.0.bn2.num_batches_tracked, ...)",
    ]


def test_safetensors_of_others(state: State, tmp_path: Path) -> None:
    save_file(state, tmp_path / "a.safetensors")
    net, report = load_weights(tmp_path / "a.safetensors", Net(arch="resnet18"))
    assert torch.equal(net.state_dict()["layer4.1.conv2.weight"], state["layer4.1.conv2.weight"])
    assert not report.own_statistics


@pytest.mark.parametrize("arch", ["wrn-10-2", "resnet18"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_our_own_files_keep_their_statistics(arch: str, suffix: str, tmp_path: Path) -> None:
    ours = build_backbone(Net(arch=arch), 5)
    ours.set_input_statistics((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    path = tmp_path / f"net{suffix}"
    if suffix == ".pt":
        torch.save({"step": 3, "model": ours.state_dict()}, path)
    else:
        save_backbone(ours, Net(arch=arch), path, {})
    loaded, report = load_weights(str(path), Net(arch=arch))
    assert report.own_statistics
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), loaded.state_dict().values(), strict=True))


def refusal(path: Path, arch: str) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is what the callers look at)
        load_weights(path, Net(arch=arch))
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    return said.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("theirs", "arch", "said"),
    [
        (
            "resnet18",
            "resnet50",
            "layer1.0.conv1.weight has shape (64, 64, 3, 3), a resnet50 needs (64, 64, 1, 1); "
            "looks like a resnet18; use --teacher.arch resnet18",
        ),
        (
            "resnet34",
            "resnet18",
            "layer1.2.conv1.weight of shape (64, 64, 3, 3) is no part of a resnet18 (96 such in all); "
            "looks like a resnet34; use weights of a wrn-<6n+4>-<width>, resnet18 or resnet50",
        ),
        (
            "wide_resnet50_2",
            "resnet50",
            "layer1.0.conv1.weight has shape (128, 64, 1, 1), a resnet50 needs (64, 64, 1, 1); "
            "looks like a wider or grouped resnet50; use weights of a wrn-<6n+4>-<width>, resnet18 or resnet50",
        ),
        (
            "resnet18",
            "wrn-10-1",
            "layer1.0.conv1.weight of shape (64, 64, 3, 3) is no part of a wrn-10-1; "
            "looks like a resnet18; use --teacher.arch resnet18",
        ),
    ],
)
def test_another_architecture_is_named(theirs: str, arch: str, said: str, tmp_path: Path) -> None:
    with torch.device("meta"):
        shapes = getattr(torchvision.models, theirs)(weights=None).state_dict()
    torch.save({k: torch.zeros(v.shape, dtype=v.dtype) for k, v in shapes.items()}, tmp_path / "a.pth")
    assert refusal(tmp_path / "a.pth", arch) == said


def test_another_width_and_depth_of_our_own(tmp_path: Path) -> None:
    net = build_backbone(Net(arch="wrn-10-2"), 0)
    save_backbone(net, Net(arch="wrn-10-2"), tmp_path / "a.safetensors", {})
    assert refusal(tmp_path / "a.safetensors", "wrn-10-1") == (
        "holds a wrn-10-2, not a wrn-10-1; looks like a wrn-10-2; use --teacher.arch wrn-10-2"
    )
    torch.save(net.state_dict(), tmp_path / "a.pt")
    for arch in ("wrn-10-1", "wrn-16-2", "resnet18"):
        assert refusal(tmp_path / "a.pt", arch).endswith("looks like a wrn-10-2; use --teacher.arch wrn-10-2")


class Code:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


def test_no_file_runs_code(state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": state, "x": Code()}, tmp_path / "a.pth")
    said = refusal(tmp_path / "a.pth", "resnet18")
    assert said.startswith("would have to run ")
    assert said.endswith("; save its weights alone with torch.save(net.state_dict(), ...)")
    torch.save(resnet("resnet18", 0), tmp_path / "a.pth")  # a whole module
    assert refusal(tmp_path / "a.pth", "resnet18").startswith("would have to run torchvision.models.resnet.ResNet, ")
    assert not (tmp_path / "ran").exists()


def test_whatever_is_wrong_is_said_in_one_line(state: State, other: State, tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    assert refusal(path, "resnet18").startswith("there is no such file")
    assert refusal(tmp_path, "resnet18").startswith("there is no such file")
    for junk in (b"", b"junk", b"PK\x03\x04junk", b"\x80\x02junk", b"\x10\0\0\0\0\0\0\0{"):
        for name in ("a.pth", "a.safetensors"):
            (tmp_path / name).write_bytes(junk)
            assert refusal(tmp_path / name, "resnet18").startswith("cannot be read as ")
    torch.save(state, path)
    path.write_bytes(path.read_bytes()[:-1000])
    assert refusal(path, "resnet18").startswith("cannot be read as weights")
    (tmp_path / "a.pkl").write_bytes(b"")
    assert refusal(tmp_path / "a.pkl", "resnet18").startswith("unknown kind of file '.pkl'; use .safetensors, .pt")

    def said(content: Any) -> str:
        torch.save(content, path)
        return refusal(path, "resnet18")

    assert said([1, 2]) == "no layer1.0.conv1.weight, so no resnet18; it holds no named tensors"
    assert said({"a": torch.zeros(1)}).endswith("so no resnet18; it holds 1 (a)")
    assert "vision transformer" in said({"teacher": {"backbone.blocks.0.attn.qkv.weight": torch.zeros(1)}})
    assert said(put("a.", state) | put("b.", other)) == (
        "holds several nets (top level: a.*, top level: b.*); save the state dict of one of them alone"
    )
    assert said({k: v for k, v in state.items() if k not in ("bn1.bias", "layer4.1.bn2.running_var")}) == (
        "bn1.bias is missing, a resnet18 has it with shape (64,) (2 missing in all); "
        "copy the file again or name another"
    )
    assert said(state | {"layer1.0.se.weight": torch.zeros(3)}).startswith(
        "layer1.0.se.weight of shape (3,) is no part"
    )
    assert said(state | {"bn1.bias": torch.full((64,), torch.nan)}).startswith("bn1.bias holds values that are not")
