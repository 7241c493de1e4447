"""library-net: a ResNet with the weights that torchvision or timm publish, downloaded by their own functions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bownet.config import Net
from bownet.nets.build import build_backbone
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.training import write_backbone
from pipelines.store import Artifact, Estimate, Workspace

ARCHITECTURES = ("resnet18", "resnet50")
_BYTES = 100 << 20  # of a ResNet-50


class Published(NamedTuple):
    """What a library has under a name."""

    weights: str  # the library's own full name, such as ResNet50_Weights.IMAGENET1K_V2
    arch: str
    address: str


class Downloaded(NamedTuple):
    state: dict[str, Tensor]
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Library(NamedTuple):
    look_up: Callable[[str], Published | None]
    known: Callable[[], list[str]]
    download: Callable[[str], Downloaded]


@dataclass(frozen=True)
class LibraryNet(ModelStage):
    """Its key is what the library calls the weights and where it has them from, whoever has downloaded them."""

    library: str
    weights: str
    address: str
    net: Net

    name = "library-net"
    title = "network"
    version = 1

    def estimate(self) -> Estimate:
        return Estimate("no training", 3 * _BYTES, _BYTES)

    def download(self) -> Downloaded:
        """Once per process; later from the library's own cache."""
        try:
            return _downloaded(self.library, self.weights)
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"weights={self.library}:{self.weights}: the downloaded file holds more than weights, and could run "
                f"code when it is read; delete it from {self.library}'s cache, by default {torch.hub.get_dir()}"
            ) from error
        except Exception as error:  # each library has errors of its own for a network that is not there
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise ValueError(
                f"weights={self.library}:{self.weights}: cannot be downloaded from {self.address} ({said[0]}); "
                "use a machine with internet, or name a file of weights"
            ) from error

    def build(self, work: Workspace) -> dict[str, Any]:
        state, mean, std = self.download()
        backbone = build_backbone(self.net, seed=0)
        wanted = {name for name in backbone.state_dict() if not name.startswith("input_")}
        backbone.load_state_dict({k: v for k, v in state.items() if k in wanted}, strict=False)
        missing = sorted(wanted - state.keys())
        if missing:
            raise ValueError(f"weights={self.library}:{self.weights}: {missing[0]} is missing; name others")
        backbone.set_input_statistics(mean, std)
        write_backbone(backbone, self.net, work)
        return {"address": self.address, "mean": mean, "std": std}

    def remark(self, artifact: Artifact) -> str | None:
        return f"{self.library} {self.weights} from {self.address}"


def library_net(library: str, name: str) -> partial[LibraryNet]:
    """The stage for the weights that `library:name` names, complete but for the model."""
    found = LIBRARIES[library].look_up(name)
    if found is None:
        known = LIBRARIES[library].known()
        raise ValueError(f"weights={library}:{name}: known are {', '.join(f'{library}:{n}' for n in known)}")
    return partial(LibraryNet, library, found.weights, found.address, Net(arch=found.arch))


@lru_cache(maxsize=8)
def _downloaded(library: str, weights: str) -> Downloaded:
    return LIBRARIES[library].download(weights)


def _torchvision_names() -> dict[str, Any]:
    from torchvision.models import get_model_weights

    named: dict[str, Any] = {}
    for arch in ARCHITECTURES:
        kinds = get_model_weights(arch)
        named[arch] = kinds["DEFAULT"]
        named |= {f"{arch}.{kind.name}": kind for kind in kinds}
    return named


def _torchvision_look_up(name: str) -> Published | None:
    weights, arch = _torchvision_names().get(name), name.partition(".")[0]
    return None if weights is None else Published(f"{arch}.{weights.name}", arch, weights.url)


def _torchvision_download(name: str) -> Downloaded:
    weights = _torchvision_names()[name]
    transforms = weights.transforms()
    # The checksum is looked at when a file is downloaded, not when it is in the cache: it could hold anything.
    state = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    return Downloaded(state, tuple(transforms.mean), tuple(transforms.std))


def _timm_known() -> list[str]:
    import timm

    return sorted(timm.list_pretrained([f"{arch}.*" for arch in ARCHITECTURES]))


def _timm_look_up(name: str) -> Published | None:
    if find_spec("timm") is None:
        raise ValueError(f"weights=timm:{name}: timm is not installed; use pip install timm")
    import timm

    arch = name.partition(".")[0]
    if arch not in ARCHITECTURES:
        return None
    known = _timm_known()
    default: Any = timm.get_pretrained_cfg(arch)
    full = f"{arch}.{default.tag}" if name == arch else name
    if full not in known:
        return None
    config: Any = timm.get_pretrained_cfg(full)
    return Published(full, arch, f"huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else str(config.url))


def _timm_download(name: str) -> Downloaded:
    import timm

    net: Any = timm.create_model(name, pretrained=True)
    return Downloaded(net.state_dict(), tuple(net.pretrained_cfg["mean"]), tuple(net.pretrained_cfg["std"]))


LIBRARIES: dict[str, Library] = {
    "torchvision": Library(_torchvision_look_up, lambda: list(_torchvision_names()), _torchvision_download),
    "timm": Library(_timm_look_up, _timm_known, _timm_download),
}
