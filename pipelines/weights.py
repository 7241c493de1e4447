"""What people write after --weights: a key, a file or a library's name goes in, a candidate for judging comes out.

Whatever is wrong with it is said in one line while the run is planned; weights of libraries are downloaded then, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from bownet.config import Evaluation, Net
from bownet.nets.checkpoint import load_saved
from bownet.nets.importing import arch_of_file
from pipelines.evaluators import Candidate, Ground
from pipelines.export import BACKBONE, find_network
from pipelines.stages.checkpoint import CheckpointNet
from pipelines.stages.library_net import LIBRARIES, LibraryNet, library_net
from pipelines.stages.teacher import RandomNet
from pipelines.store import Artifact, Store, StoreError

KEY = re.compile(r"([\w.-]+/)?[0-9a-f]{2,}")
FORMS = "a key of the store, a file, torchvision:NAME, timm:NAME or random:ARCH"


@dataclass(frozen=True)
class Source:
    """Weights that were found: names from short to long, their architecture, and how to get the artifact."""

    names: tuple[str, str]
    arch: Net
    get: Callable[[str], Artifact]


def candidates(settings: Evaluation, ground: Ground) -> list[Candidate]:
    """One for each of `weights`, with names that are short and different from each other."""
    if not settings.weights:
        raise ValueError(f"weights=(): name what is to be judged, --weights with {FORMS}")
    twice = [text for text, count in Counter(settings.weights).items() if count > 1]
    if twice:
        raise ValueError(f"weights={twice[0]}: named twice; each is a row of its own, name it once")
    sources = [find(text, settings, ground) for text in settings.weights]
    return [Candidate(name, s.get(name), s.arch) for name, s in zip(row_names(sources), sources, strict=True)]


def row_names(sources: list[Source]) -> list[str]:
    """The short name where no other has it, else the long one, else numbered."""
    short = Counter(_plain(source.names[0]) for source in sources)
    names: list[str] = []
    for source in sources:
        name = _plain(source.names[0] if short[_plain(source.names[0])] == 1 else source.names[1])
        same = sum(re.fullmatch(rf"{re.escape(name)}( \d+)?", other) is not None for other in names)
        names.append(f"{name} {same + 1}" if same else name)
    return names


def _plain(name: str) -> str:
    """With the letters that MLflow allows in the name of a metric."""
    return re.sub(r"[^\w. /-]", "-", name)


def find(text: str, settings: Evaluation, ground: Ground) -> Source:
    """What this text of `weights` names."""
    kind, colon, name = text.partition(":")
    if colon and kind == "random":
        return _random(text, name, ground)
    if colon and kind in LIBRARIES:
        return _library(kind, name, ground)
    if Path(text).expanduser().is_file():
        return _file(text, settings, ground)
    if KEY.fullmatch(text):
        return _stored(text, ground)
    if Path(text).suffix or "/" in text:
        raise ValueError(f"weights={text}: there is no such file on this machine; name another")
    raise ValueError(f"weights={text}: neither a file nor a key; use {FORMS}")


def _random(text: str, arch: str, ground: Ground) -> Source:
    try:
        net = Net(arch=arch)
    except ValidationError:
        raise ValueError(f"weights={text}: known are wrn-<6n+4>-<width>, resnet18, resnet50") from None
    return Source(
        ("random", f"random {arch}"),
        net,
        lambda name: ground.get(RandomNet(net, ground.seed, ground.images, model=name)),
    )


def _library(library: str, name: str, ground: Ground) -> Source:
    stage: partial[LibraryNet] = library_net(library, name)
    probe = stage(model=name)
    if not Store(ground.store.root).plan(probe).exists():
        probe.download()  # now, not after hours of other rows
    return Source((name, f"{library} {name}"), probe.net, lambda model: ground.get(stage(model=model)))


def _file(text: str, settings: Evaluation, ground: Ground) -> Source:
    path = Path(text).expanduser()
    try:
        looks, ours = arch_of_file(path)
    except ValueError as error:
        raise ValueError(f"weights={error}") from error
    arch = looks if ours or settings.arch is None else settings.arch
    if arch is None:
        raise ValueError(f"weights={text}: its names tell no architecture; use --arch with that of its weights")
    try:
        net = Net(arch=arch)
    except ValidationError:
        known = "known are wrn-<6n+4>-<width>, resnet18, resnet50"
        raise ValueError(f"weights={text}: looks like a {arch}; {known}") from None
    stem = path.name.partition(".")[0] or path.name
    return Source(
        (stem, f"{path.absolute().parent.name}/{stem}"),
        net,
        lambda name: ground.get(CheckpointNet(net, text, setting="weights", arch_flag="--arch", model=name)),
    )


def _stored(text: str, ground: Ground) -> Source:
    try:
        artifact = find_network(ground.store.root, text)
    except StoreError as error:
        reason = str(error).removeprefix(f"key={text}: ")
        raise ValueError(f"weights={text}: no file, and as a key of the store: {reason}") from error
    _, net = load_saved(artifact.local_path(BACKBONE))
    model = str(artifact.manifest()["label"]).partition(":")[0]
    return Source((model, f"{model} {artifact.key[:8]}"), net, lambda name: artifact)
