"""A backbone as a file: safetensors with its architecture and input statistics; loading runs no code of the file."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone

# One entry of metadata: safetensors writes several in no fixed order, and equal nets shall be equal files.
_ABOUT = "bownet"


def save_backbone(backbone: Backbone, net: Net, path: Path, provenance: dict[str, str]) -> None:
    about = json.dumps({"arch": net.arch, "taps": backbone.taps, **provenance}, sort_keys=True)
    save_file({k: v.contiguous().cpu() for k, v in backbone.state_dict().items()}, path, {_ABOUT: about})


def load_backbone(path: Path) -> Backbone:
    """The net with its weights; every key must be present and of the right shape."""
    with safe_open(path, "pt") as file:
        about = json.loads((file.metadata() or {}).get(_ABOUT, "{}"))
        if "arch" not in about:
            raise ValueError(f"{path}: names no architecture, so it is not a backbone saved by this program")
        backbone = build_backbone(Net(arch=about["arch"]), seed=0)
        backbone.load_state_dict({k: file.get_tensor(k) for k in file.keys()})  # noqa: SIM118 (not a dict)
    return backbone.to(memory_format=torch.channels_last)
