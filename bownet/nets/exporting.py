"""A backbone for other programs: the net and the name of a format go in, a file and how to use it come out.

The weights are the same numbers under the names that torchvision, timm or detectron2 give them; ONNX holds the
computation too, with the scaling of the input inside.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bownet.config import Net
from bownet.nets.checkpoint import save_backbone
from bownet.nets.taps import Backbone

ONNX_OPSET = 18


class Format(NamedTuple):
    suffixes: tuple[str, ...]
    resnets_only: bool


FORMATS = {
    "torchvision": Format((".pth", ".safetensors"), True),
    "timm": Format((".pth", ".safetensors"), True),
    "detectron2": Format((".pth",), True),
    "safetensors": Format((".safetensors",), False),
    "onnx": Format((".onnx",), False),
}


def check_export(backbone: Backbone, net: Net, format: str, path: Path, tap: str | None = None) -> None:
    """Raise a ValueError of one line for what cannot be exported."""
    if format not in FORMATS:
        raise ValueError(f"format={format}: unknown; there are {', '.join(FORMATS)}")
    if FORMATS[format].resnets_only and not net.arch.startswith("resnet"):
        fitting = ", ".join(name for name, other in FORMATS.items() if not other.resnets_only)
        raise ValueError(f"format={format}: has resnet18 and resnet50, not {net.arch}; use one of {fitting}")
    if path.suffix not in FORMATS[format].suffixes:
        raise ValueError(f"out={path}: {format} is written as {' or '.join(FORMATS[format].suffixes)}")
    if tap is not None and format != "onnx":
        raise ValueError(f"tap={tap}: only onnx is a graph with outputs to choose; leave it out for {format}")
    if tap is not None:
        backbone.check_taps([tap])
    if format == "onnx" and (absent := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]):
        raise ValueError(f"format=onnx: {' and '.join(absent)} not installed; use pip install -e '.[export]'")


def export_backbone(
    backbone: Backbone, net: Net, format: str, path: Path, provenance: dict[str, str], tap: str | None = None
) -> dict[str, Any]:
    """Write the file; return what its user must know: the input it expects, what it gives and how to load it.

    `tap` is the feature map that an ONNX graph gives beside the pooled feature; None is the last one.
    """
    check_export(backbone, net, format, path, tap)
    backbone.eval()
    mean, std = _decimals(backbone.input_mean), _decimals(backbone.input_std)
    pixels: dict[str, Any] = {"order": "RGB", "range": [0, 1], "mean": mean, "std": std, "scaled_by": "you"}
    about: dict[str, Any] = {"format": format, "arch": net.arch, "input": pixels, "from": provenance}
    features = backbone.tap_channels[backbone.pooled]
    match format:
        case "torchvision":
            _save(torchvision_state(backbone), path)
            about["load"] = f"net = torchvision.models.{net.arch}(); net.fc = torch.nn.Identity(); {_loading(path)}"
            about["gives"] = f"{features} pooled features; the file has no fc, strict=False leaves fc as it is"
        case "timm":
            _save(torchvision_state(backbone), path)
            about["load"] = f'timm.create_model("{net.arch}", num_classes=0, checkpoint_path="{path.name}")'
            about["gives"] = f"{features} pooled features"
        case "detectron2":
            torch.save(
                {"model": detectron2_state(backbone), "__author__": "BoWNet on Ray", "matching_heuristics": True}, path
            )
            pixels |= {"range": [0, 255], "mean": [round(255 * m, 4) for m in mean]}
            pixels |= {"std": [round(255 * s, 4) for s in std], "scaled_by": "detectron2, by the config below"}
            about["config"] = {
                "MODEL.WEIGHTS": path.name,
                "MODEL.PIXEL_MEAN": pixels["mean"],
                "MODEL.PIXEL_STD": pixels["std"],
                "MODEL.RESNETS.DEPTH": int(net.arch.removeprefix("resnet")),
                "MODEL.RESNETS.STRIDE_IN_1X1": False,
                "INPUT.FORMAT": "RGB",
            }
            if net.arch == "resnet18":
                about["config"]["MODEL.RESNETS.RES2_OUT_CHANNELS"] = 64
            about["load"] = "set the config; DetectionCheckpointer reads the file"
            about["gives"] = "stem and res2 to res5"
        case "safetensors":
            save_backbone(backbone, net, path, provenance)
            pixels["scaled_by"] = "the net: give it pixels in [0, 1]"
            about["load"] = f'bownet.nets.checkpoint.load_backbone(Path("{path.name}"))'
            about["gives"] = f"taps {', '.join(backbone.taps)}"
        case _:
            names = dict.fromkeys((backbone.pooled, tap or backbone.taps[-2]))
            _save_onnx(backbone, tuple(names), path)
            pixels["scaled_by"] = "the graph: give it pixels in [0, 1]"
            about["load"] = f'onnxruntime.InferenceSession("{path.name}").run(None, {{"images": float32 NCHW}})'
            about["gives"] = f"outputs {', '.join(names)}; any batch, height and width"
    return about


def torchvision_state(backbone: Backbone) -> dict[str, Tensor]:
    """The names of torchvision, which are timm's too. Without fc: there is none, and a made-up one would mislead."""
    state = backbone.state_dict()
    return {name: value.contiguous().cpu() for name, value in state.items() if not name.startswith("input_")}


def detectron2_state(backbone: Backbone) -> dict[str, Tensor]:
    """stem.conv1, res2..res5 and shortcut; a norm belongs to its convolution, and its frozen form counts no batches."""
    names = {}
    for name in torchvision_state(backbone):
        new = re.sub(r"^layer(\d)", lambda m: f"res{int(m[1]) + 1}", name)
        new = new if new != name else f"stem.{name}"
        new = re.sub(r"\bbn(\d)", r"conv\1.norm", new)
        names[name] = new.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")
    state = torchvision_state(backbone)
    return {new: state[name] for name, new in names.items() if not name.endswith("num_batches_tracked")}


class _Graph(nn.Module):
    """A backbone that returns a tuple."""

    def __init__(self, backbone: Backbone, taps: tuple[str, ...]) -> None:
        super().__init__()
        self.backbone, self.taps = backbone, taps

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = self.backbone(images, self.taps)
        return tuple(found[tap] for tap in self.taps)


def _save_onnx(backbone: Backbone, taps: tuple[str, ...], path: Path) -> None:
    free = {i: torch.export.Dim(name, min=low) for i, name, low in ((0, "batch", 1), (2, "height", 8), (3, "width", 8))}
    torch.onnx.export(
        _Graph(backbone, taps).eval(),
        (torch.zeros(2, 3, 64, 64),),
        path,
        input_names=["images"],
        output_names=list(taps),
        dynamic_shapes=(free,),
        opset_version=ONNX_OPSET,
        external_data=False,  # one file; it would need another only beyond 2 GB
        verbose=False,
    )


def _save(state: dict[str, Tensor], path: Path) -> None:
    if path.suffix == ".safetensors":
        save_file(state, path, {"format": "pt"})
    else:
        torch.save(state, path)


def _loading(path: Path) -> str:
    read = "safetensors.torch.load_file" if path.suffix == ".safetensors" else "torch.load"
    return f'net.load_state_dict({read}("{path.name}"))'


def _decimals(values: Tensor) -> list[float]:
    """The shortest decimals that are the same float32: 0.485, not 0.48500001430511475."""
    return [float(str(np.float32(value))) for value in values.tolist()]
