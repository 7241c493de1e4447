"""Our nets in the hands of others: the same features from torchvision, timm and ONNX, and detectron2's names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import load_file
from torch import Generator, Tensor, nn

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.exporting import FORMATS, check_export, export_backbone
from bownet.nets.importing import load_weights
from bownet.nets.taps import Backbone

MEAN, STD = (0.51, 0.43, 0.39), (0.21, 0.28, 0.3)


def backbone(arch: str) -> Backbone:
    """With statistics that are seen to travel."""
    net = build_backbone(Net(arch=arch), seed=4).eval()
    net.set_input_statistics(MEAN, STD)
    generator = Generator().manual_seed(5)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
    return net


def images(n: int = 2, height: int = 64, width: int = 64) -> Tensor:
    return torch.rand(n, 3, height, width, generator=Generator().manual_seed(0))


def scaled(x: Tensor, about: dict[str, Any]) -> Tensor:
    """As the description says."""
    assert about["input"]["order"] == "RGB"
    low, high = about["input"]["range"]
    mean, std = (torch.tensor(about["input"][name]).view(3, 1, 1) for name in ("mean", "std"))
    return (low + x * (high - low) - mean) / std


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(
    ("arch", "name"), [("resnet18", "a.pth"), ("resnet50", "a.pth"), ("resnet18", "a.safetensors")]
)
def test_features_in_torchvision(arch: str, name: str, tmp_path: Path) -> None:
    ours = backbone(arch)
    about = export_backbone(ours, Net(arch=arch), "torchvision", tmp_path / name, {"key": "k"})
    assert about["input"] == {"order": "RGB", "range": [0, 1], "mean": [*MEAN], "std": [*STD], "scaled_by": "you"}
    theirs = getattr(torchvision.models, arch)(weights=None).eval()
    state = load_file(tmp_path / name) if name.endswith("safetensors") else torch.load(tmp_path / name)
    keys = theirs.load_state_dict(state, strict=False)
    assert keys.missing_keys == ["fc.weight", "fc.bias"]
    assert keys.unexpected_keys == []
    theirs.fc = nn.Identity()
    theirs.load_state_dict(state)
    with torch.no_grad():
        assert relative(theirs(scaled(images(), about)), ours(images(), ("pool5",))["pool5"]) < 1e-5


@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
def test_features_in_timm(arch: str, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    ours = backbone(arch)
    about = export_backbone(ours, Net(arch=arch), "timm", tmp_path / "a.safetensors", {})
    assert about["load"] == f'timm.create_model("{arch}", num_classes=0, checkpoint_path="a.safetensors")'
    theirs = timm.create_model(arch, num_classes=0, checkpoint_path=str(tmp_path / "a.safetensors")).eval()
    with torch.no_grad():
        assert relative(theirs(scaled(images(), about)), ours(images(), ("pool5",))["pool5"]) < 1e-5


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        (
            "resnet50",
            {
                "stem.conv1.weight": (64, 3, 7, 7),
                "stem.conv1.norm.running_mean": (64,),
                "res2.0.conv1.weight": (64, 64, 1, 1),
                "res2.0.conv3.norm.bias": (256,),
                "res2.0.shortcut.weight": (256, 64, 1, 1),
                "res2.0.shortcut.norm.running_var": (256,),
                "res4.5.conv2.weight": (256, 256, 3, 3),
                "res5.2.conv3.weight": (2048, 512, 1, 1),
            },
        ),
        (
            "resnet18",
            {
                "res2.1.conv2.norm.weight": (64,),
                "res3.0.shortcut.weight": (128, 64, 1, 1),
                "res5.1.conv2.weight": (512, 512, 3, 3),
            },
        ),
    ],
)
def test_names_in_detectron2(arch: str, expected: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    ours = backbone(arch)
    about = export_backbone(ours, Net(arch=arch), "detectron2", tmp_path / "a.pth", {})
    file = torch.load(tmp_path / "a.pth")  # weights only: there is no code in it
    assert file["matching_heuristics"] is True
    assert {name: tuple(file["model"][name].shape) for name in expected} == expected
    assert {name.split(".")[0] for name in file["model"]} == {"stem", "res2", "res3", "res4", "res5"}
    # 53 convolutions in a ResNet-50 and 20 in a ResNet-18, each with its weight and the four tensors of its norm
    assert len(file["model"]) == {"resnet50": 53, "resnet18": 20}[arch] * 5
    assert torch.equal(file["model"]["res5.1.conv1.weight"], ours.state_dict()["layer4.1.conv1.weight"])
    assert about["config"]["MODEL.PIXEL_MEAN"] == pytest.approx([130.05, 109.65, 99.45])
    assert about["config"]["MODEL.PIXEL_STD"] == pytest.approx([53.55, 71.4, 76.5])
    assert (about["config"]["INPUT.FORMAT"], about["config"]["MODEL.RESNETS.STRIDE_IN_1X1"]) == ("RGB", False)
    assert ("MODEL.RESNETS.RES2_OUT_CHANNELS" in about["config"]) == (arch == "resnet18")


def run_onnx(path: Path, x: Tensor) -> list[Tensor]:
    """By onnxruntime, else by the plain evaluator of onnx."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        found = ReferenceEvaluator(str(path)).run(None, {"images": x.numpy()})
    else:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        found = session.run(None, {"images": x.numpy()})
    return [torch.from_numpy(np.asarray(value)) for value in found]


@pytest.mark.parametrize(("arch", "tap"), [("wrn-10-1", "block2"), ("resnet18", None)])
def test_features_of_the_onnx_graph(arch: str, tap: str | None, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    ours = backbone(arch)
    about = export_backbone(ours, Net(arch=arch), "onnx", tmp_path / "a.onnx", {}, tap)
    onnx.checker.check_model(onnx.load(tmp_path / "a.onnx"), full_check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]
    taps = (ours.pooled, tap or ours.taps[-2])
    assert about["gives"] == f"outputs {taps[0]}, {taps[1]}; any batch, height and width"
    for shape in ((1, 32, 32), (3, 33, 47)):
        x = images(*shape)  # as they are: the graph scales them
        with torch.no_grad():
            expected = ours(x, taps)
        for name, found in zip(taps, run_onnx(tmp_path / "a.onnx", x), strict=True):
            assert found.shape == expected[name].shape
            assert relative(found, expected[name]) < 1e-4


@pytest.mark.skipif(find_spec("onnxscript") is not None, reason="onnxscript is installed")
def test_onnx_without_its_packages_names_them() -> None:
    net = Net(arch="wrn-10-1")
    with pytest.raises(
        ValueError, match=r"^format=onnx: .*onnxscript not installed; use pip install -e '.\[export\]'$"
    ):
        check_export(build_backbone(net, 0), net, "onnx", Path("a.onnx"))


@pytest.mark.parametrize(
    ("arch", "format", "name"),
    [
        ("resnet18", "torchvision", "a.pth"),
        ("resnet50", "timm", "a.safetensors"),
        ("resnet18", "safetensors", "a.safetensors"),
        ("wrn-16-1", "safetensors", "a.safetensors"),
    ],
)
def test_out_and_in_again_to_the_bit(arch: str, format: str, name: str, tmp_path: Path) -> None:
    ours = backbone(arch)
    export_backbone(ours, Net(arch=arch), format, tmp_path / name, {})
    back, report = load_weights(tmp_path / name, Net(arch=arch))
    assert report.own_statistics == (format == "safetensors")
    kept = {k for k in ours.state_dict() if report.own_statistics or not k.startswith("input_")}
    assert all(torch.equal(ours.state_dict()[k], back.state_dict()[k]) for k in kept)


@pytest.mark.parametrize(
    ("arch", "format", "name", "tap", "said"),
    [
        (
            "wrn-10-1",
            "torchvision",
            "a.pth",
            None,
            "has resnet18 and resnet50, not wrn-10-1; use one of safetensors, onnx",
        ),
        ("wrn-10-1", "detectron2", "a.pth", None, "use one of safetensors, onnx"),
        ("wrn-10-1", "caffe", "a.pth", None, f"format=caffe: unknown; there are {', '.join(FORMATS)}"),
        ("resnet18", "detectron2", "a.pkl", None, "a.pkl: detectron2 is written as .pth"),
        ("resnet18", "timm", "a.onnx", None, "a.onnx: timm is written as .pth or .safetensors"),
        ("resnet18", "timm", "a.pth", "conv5", "tap=conv5: only onnx is a graph"),
        ("wrn-10-1", "onnx", "a.onnx", "conv5", "tap='conv5': WideResNet has block1, block2, block3, pool"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    arch: str, format: str, name: str, tap: str | None, said: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text follows)
        check_export(build_backbone(Net(arch=arch), 0), Net(arch=arch), format, Path(name), tap)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
