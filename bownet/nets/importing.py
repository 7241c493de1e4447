"""Weights of others as a backbone: a file of a state dict and an architecture go in, the net and a report come out.

Reads safetensors and what torch.save wrote, without running code of the file. Where the dict lies and what its names
begin with is found by looking for the first block of the architecture: torchvision, timm, MoCo, DINO, SwAV, VISSL,
mmselfsup and our own files are all the same net under other prefixes.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import ABOUT
from bownet.nets.taps import Backbone

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
ARCH_FLAG = "--teacher.arch"
TORCH_SUFFIXES = (".pt", ".pth", ".torch", ".tar", ".bin", ".ckpt")  # .torch is VISSL's

# What is taken when a file holds several nets: the part that its authors evaluate, by a word of its place.
# DINO evaluates the teacher, MoCo v1 and v2 the query encoder, v3 the base encoder, timm the average of the weights,
# VISSL the trunk, mmselfsup the backbone, whatever momentum nets stand beside them.
_PREFERRED: tuple[str, ...] = ("teacher", "encoder_q", "base_encoder", "state_dict_ema", "model_ema")
_PREFERRED += ("trunk", "backbone", "state_dict", "model", "student")
_HEADS = re.compile(
    r"(^|\.)(fc|heads?|projection|projection_head|projector|predictor|prototypes?|classifier|linear|last_layer|mlp"
    r"|queue\w*)(\.|\d|$)"
)
_ANCHORS = ("layer1.0.conv1.weight", "block1.0.conv1.weight")  # of the first block: ResNets, Wide ResNets
_NOT_NEEDED = "num_batches_tracked"
_STATISTICS = ("input_mean", "input_std")
_BLOCKS: dict[tuple[bool, tuple[int, ...]], str] = {  # of layer1 to layer4, by whether a block is a bottleneck
    (False, (2, 2, 2, 2)): "resnet18",
    (False, (3, 4, 6, 3)): "resnet34",
    (True, (3, 4, 6, 3)): "resnet50",
    (True, (3, 4, 23, 3)): "resnet101",
    (True, (3, 8, 36, 3)): "resnet152",
}


@dataclass(frozen=True)
class Report:
    """What was taken from a file and what was not."""

    file: str
    place: str  # such as `state_dict: module.encoder_q.*`
    loaded: int
    left_out: tuple[str, ...]  # heads, and whatever else stands beside the net
    other_nets: tuple[str, ...]  # their places
    unexpected: tuple[str, ...]
    missing: tuple[str, ...]  # only what a net works without
    own_statistics: bool
    precision: str | None  # of the file, where it is not float32

    def lines(self) -> list[str]:
        given = "the file's own" if self.own_statistics else f"ImageNet's (mean {IMAGENET_MEAN}, std {IMAGENET_STD})"
        said = [f"{self.file}: {self.loaded} tensors from {self.place}; input statistics: {given}"]
        if self.precision:
            said.append(f"converted from {self.precision} to float32")
        for what, names in (
            ("other nets in the file", self.other_nets),
            ("left out", self.left_out),
            ("unexpected, not used", self.unexpected),
            ("missing, not needed", self.missing),
        ):
            if names:
                said.append(f"{what}: {_counted(names)}")
        return said


class _Found(NamedTuple):
    """A net inside a file: the names of its dict that lead to it, the prefix of its weights, and the dict."""

    path: tuple[str, ...]
    prefix: str
    weights: Mapping[str, Tensor]

    @property
    def place(self) -> str:
        return f"{'.'.join(self.path) or 'top level'}: {self.prefix}*"

    @property
    def state(self) -> dict[str, Tensor]:
        return {k.removeprefix(self.prefix): v for k, v in self.weights.items() if k.startswith(self.prefix)}

    @property
    def rank(self) -> int:
        words = {*self.path, *self.prefix.split(".")}
        return min((_PREFERRED.index(word) for word in words if word in _PREFERRED), default=len(_PREFERRED))


def arch_of_file(path: str | Path) -> tuple[str | None, bool]:
    """The architecture that a file's names and shapes tell, known here or not, and whether this program saved it."""
    content, saved = read_file(Path(path).expanduser())
    if saved is not None:
        return saved, True
    nets = [found for anchor in _ANCHORS for found in _nets(_dicts(content, ()), anchor)]
    best = min(nets, key=lambda found: found.rank, default=None)
    return (None if best is None else _looks_like(best.state)), False


def load_weights(path: str | Path, net: Net, arch_flag: str = ARCH_FLAG) -> tuple[Backbone, Report]:
    """The backbone with the file's weights. Whatever does not fit exactly is refused by a ValueError of one line.

    `arch_flag` is what people type to name an architecture.
    """
    path = Path(path).expanduser()
    content, saved_arch = read_file(path)
    if saved_arch not in (None, net.arch):
        raise ValueError(f"{path}: holds a {saved_arch}, not a {net.arch}; {_remedy(saved_arch, arch_flag)}")
    backbone = build_backbone(net, seed=0)
    wanted = backbone.state_dict()
    found, others = _the_net(path, content, net, wanted, arch_flag)
    state = found.state
    _check_fit(path, state, net, wanted, arch_flag)

    own = all(name in state for name in _STATISTICS)
    if not own:
        backbone.set_input_statistics(IMAGENET_MEAN, IMAGENET_STD)
    taken = {name: value for name, value in state.items() if name in wanted}
    backbone.load_state_dict(taken, strict=False)
    missing = tuple(name for name in wanted if name not in state and name not in _STATISTICS)
    beside = tuple(o.prefix for o in others if o.path == found.path and not found.prefix.startswith(o.prefix))
    rest = [n for n in found.weights if n.removeprefix(found.prefix) not in taken and not n.startswith(beside)]
    left_out = tuple(name for name in rest if not name.startswith(found.prefix) or _HEADS.search(name))
    types = {value.dtype for value in taken.values() if value.is_floating_point()} - {torch.float32}
    return backbone.to(memory_format=torch.channels_last), Report(
        file=path.name,
        place=found.place,
        loaded=len(taken),
        left_out=left_out,
        other_nets=tuple(other.place for other in others),
        unexpected=tuple(name for name in rest if name not in left_out),
        missing=missing,
        own_statistics=own,
        precision=", ".join(sorted(str(t).removeprefix("torch.") for t in types)) or None,
    )


def read_file(path: Path) -> tuple[Any, str | None]:
    """What the file holds, and the architecture if it is a backbone saved by this program."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; name a file of weights on this machine")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, "pt") as file:
                about = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
                return {k: file.get_tensor(k) for k in file.keys()}, about.get("arch")  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: cannot be read as safetensors ({_one_line(error)}); copy it again") from error
    if path.suffix not in TORCH_SUFFIXES:
        known = ", ".join((".safetensors", *TORCH_SUFFIXES))
        raise ValueError(f"{path}: unknown kind of file {path.suffix!r}; use {known}")
    try:
        # A Namespace is a plain record, and DINO's and timm's training files keep their arguments in one.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")  # of old formats, which are read all the same
            return torch.load(path, map_location="cpu", weights_only=True), None
    except Exception as error:  # torch's reader meets damage with whatever its next step raises
        if isinstance(error, pickle.UnpicklingError) and (named := re.search(r"GLOBAL ([\w.]+)", str(error))):
            raise ValueError(
                f"{path}: would have to run {named[1]}, and no file may run code here; "
                "save its weights alone with torch.save(net.state_dict(), ...)"
            ) from error
        raise ValueError(f"{path}: cannot be read as weights ({_one_line(error)}); copy it again") from error


def _nets(dicts: Iterable[tuple[tuple[str, ...], Mapping[str, Tensor]]], anchor: str) -> list[_Found]:
    """Every net with a tensor of this name."""
    return [
        _Found(where, key.removesuffix(anchor), weights)
        for where, weights in dicts
        for key in weights
        if key == anchor or key.endswith(f".{anchor}")
    ]


def _the_net(
    path: Path, content: Any, net: Net, wanted: Mapping[str, Tensor], arch_flag: str
) -> tuple[_Found, list[_Found]]:
    """The net of this kind in the file, by preference where there are several; and the others."""
    anchor = next(name for name in _ANCHORS if name in wanted)
    dicts = list(_dicts(content, ()))
    nets = _nets(dicts, anchor)
    if not nets:
        for _, weights in dicts:
            _refuse_another_kind(path, weights, net, arch_flag)
        names = [name for _, weights in dicts for name in weights]
        held = _counted(names) if names else "no named tensors"
        raise ValueError(f"{path}: no {anchor}, so no {net.arch}; it holds {held}")
    best = min(found.rank for found in nets)
    first = [found for found in nets if found.rank == best]
    if len(first) > 1:
        places = ", ".join(found.place for found in first)
        raise ValueError(f"{path}: holds several nets ({places}); save the state dict of one of them alone")
    return first[0], [found for found in nets if found is not first[0]]


def _dicts(content: Any, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Tensor]]]:
    """Every dict of named tensors, however deep."""
    if not isinstance(content, Mapping):
        return
    tensors = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
    if tensors:
        yield where, tensors
    for name, inner in content.items():
        yield from _dicts(inner, (*where, str(name)))


def _check_fit(path: Path, state: Mapping[str, Tensor], net: Net, wanted: Mapping[str, Tensor], arch_flag: str) -> None:
    looks = _looks_like(state)
    remedy = _remedy(looks, arch_flag) if looks != net.arch else "copy the file again or name another"
    for name, value in wanted.items():
        if name not in state:
            if name.endswith(_NOT_NEEDED) or name in _STATISTICS:
                continue
            absent = [n for n in wanted if n not in state and not n.endswith(_NOT_NEEDED) and n not in _STATISTICS]
            shape = tuple(value.shape)
            raise ValueError(
                f"{path}: {name} is missing, a {net.arch} has it with shape {shape} "
                f"({len(absent)} missing in all); {remedy}"
            )
        if state[name].shape != value.shape:
            have, need = tuple(state[name].shape), tuple(value.shape)
            raise ValueError(f"{path}: {name} has shape {have}, a {net.arch} needs {need}; {remedy}")
        if not torch.isfinite(state[name]).all():
            raise ValueError(
                f"{path}: {name} holds values that are not finite; use a file of a training that went well"
            )
    stages = {name.partition(".")[0] for name in wanted}
    # A ResNet-34 has all that a ResNet-18 has, and more blocks: without these it is neither.
    more = [name for name in state if name not in wanted and name.partition(".")[0] in stages]
    if more:
        shape = tuple(state[more[0]].shape)
        raise ValueError(
            f"{path}: {more[0]} of shape {shape} is no part of a {net.arch} ({len(more)} such in all); {remedy}"
        )


def _refuse_another_kind(path: Path, weights: Mapping[str, Tensor], net: Net, arch_flag: str) -> None:
    for anchor in _ANCHORS:
        for found in _nets([((), weights)], anchor):
            key, remedy = found.prefix + anchor, _remedy(_looks_like(found.state), arch_flag)
            raise ValueError(f"{path}: {key} of shape {tuple(weights[key].shape)} is no part of a {net.arch}; {remedy}")
    if any("attn.qkv" in key or "self_attention" in key for key in weights):
        raise ValueError(f"{path}: {_remedy('vision transformer', arch_flag)}")


def _looks_like(state: Mapping[str, Tensor]) -> str | None:
    """The architecture that names and shapes tell, known to this program or not."""
    first = state.get("block1.0.conv1.weight")
    if first is not None and first.dim() == 4:
        layers = len([name for name in state if re.fullmatch(r"block1\.\d+\.conv1\.weight", name)])
        return f"wrn-{6 * layers + 4}-{first.shape[0] // 16}"
    second = state.get("layer1.0.conv2.weight")
    if second is None or second.dim() != 4:
        return None
    blocks = tuple(
        len([name for name in state if re.fullmatch(rf"layer{i}\.\d+\.conv1\.weight", name)]) for i in range(1, 5)
    )
    name = _BLOCKS.get(("layer1.0.conv3.weight" in state, blocks))
    if name is not None and tuple(second.shape[:2]) != (64, 64):
        return f"wider or grouped {name}"
    return name


def _remedy(arch: str | None, arch_flag: str) -> str:
    known = "use weights of a wrn-<6n+4>-<width>, resnet18 or resnet50"
    if arch is None:
        return known
    try:
        return f"looks like a {arch}; use {arch_flag} {Net(arch=arch).arch}"
    except ValidationError:
        return f"looks like a {arch}; {known}"


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
