"""A backbone as a file: safetensors with its architecture and input statistics; loading runs no code of the file."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import shorten

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone

# One entry of metadata: safetensors writes several in no fixed order, and equal nets shall be equal files.
ABOUT = "bownet"


def save_backbone(backbone: Backbone, net: Net, path: Path, provenance: dict[str, str]) -> None:
    about = json.dumps({"arch": net.arch, "taps": backbone.taps, **provenance}, sort_keys=True)
    save_file({k: v.contiguous().cpu() for k, v in backbone.state_dict().items()}, path, {ABOUT: about})


def load_backbone(path: str | Path) -> Backbone:
    return load_saved(path)[0]


def load_saved(path: str | Path) -> tuple[Backbone, Net]:
    """The net with its weights, and its architecture; every key must be present and of the right shape."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
            state = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read as safetensors ({error}); name another or copy it again") from error
    if "arch" not in about:
        raise ValueError(f"{path}: names no architecture, so it is not a backbone saved by this program")
    net = Net(arch=about["arch"])
    backbone = build_backbone(net, seed=0)
    try:
        backbone.load_state_dict(state)
    except RuntimeError as error:  # a list of every key that differs
        reason = shorten(str(error).splitlines()[1], 120)
        raise ValueError(f"{path}: its weights are not those of a {net.arch} ({reason}); save it again") from error
    backbone.key = about.get("key")
    return backbone.to(memory_format=torch.channels_last), net
