"""The paper's own protocols as cards, and what differs: a card goes in, differences in plain words come out.

A reference holds only what the paper, or the benchmark that it follows, states (section 4, appendix C).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.cards import WHOLE_BATCH, Card, plain_view, squashed_view

# What must differ between two networks of one table: how their maps are pooled tells their shapes.
OF_THE_MODEL = ("pooling",)
_ABSENT = object()


@dataclass(frozen=True)
class Reference:
    """A protocol of the paper: its name for people, and the parts of a card that it fixes."""

    name: str
    evaluator: str
    card: Card
    test_view: Callable[[int], str] | None = None  # by `image_size`, which has a phrase of its own; None: not stated


def _centre_crop(size: int) -> str:
    """Of files: 256 and 224."""
    return plain_view({"image_size": size, "storage": "encoded"})


def _linear(name: str, data: Card, test_view: Callable[[int], str] | None = None, **solver: Any) -> Reference:
    return Reference(name, "linear", {"data": data, "solver": solver, "trials": 1}, test_view)


_CIFAR_LINEAR: Card = {
    "features": "cached",
    "pool": "global",
    "epochs": 60,
    "lr": 0.1,
    "drop_every": 10,
    "drop_factor": 0.3,
    "weight_decay": 1e-3,
    "batch_norm": False,
}
_BENCHMARK_LINEAR: Card = {
    "features": "online",
    "pool": "9k",
    "batch": 256,
    "lr": 0.01,
    "drop_factor": 0.1,
    "weight_decay": 1e-4,
    "nesterov": True,
    "crop_area": (0.08, 1.0),
}
_IMAGENET_TEST = {"set": "imagenet", "test": {"images": 50_000}, "image_size": 224}
_IMAGENET = {**_IMAGENET_TEST, "train": {"images": 1_281_167}}
_PLACES = {"set": "places205", "train": {"images": 2_448_873}, "test": {"images": 20_500}, "image_size": 224}
_PLACES_LINEAR: Card = {**_BENCHMARK_LINEAR, "epochs": 14, "drop_every": 5}
_EPISODES = {"ways": 5, "queries": 15, "episodes": 2000}
_VOC07_TEST = {"images": 4952}

REFERENCES: tuple[Reference, ...] = (
    _linear(
        "CIFAR-100",
        {"set": "cifar100", "train": {"images": 50_000}, "test": {"images": 10_000}, "image_size": 32},
        **_CIFAR_LINEAR,
    ),
    _linear(
        "MiniImageNet",
        {"set": "miniimagenet", "train": {"images": 38_400, "classes": 64}, "image_size": 84},
        **_CIFAR_LINEAR,
    ),
    _linear("ImageNet", _IMAGENET, _centre_crop, **_BENCHMARK_LINEAR, epochs=28, drop_every=10),
    _linear("Places205", _PLACES, _centre_crop, **_PLACES_LINEAR),
    Reference("Places205", "transfer", {"data": _PLACES, "solver": _PLACES_LINEAR, "trials": 1}, _centre_crop),
    _linear(
        "ImageNet with ResNet-18",
        _IMAGENET_TEST,  # the network saw 20% of the training images; of the classifier the paper does not say it
        _centre_crop,
        features="online",
        pool="4x4",
        epochs=60,
        lr=0.1,
        drop_every=20,
        drop_factor=0.1,
        weight_decay=1e-3,
    ),
    Reference(
        "CIFAR-100",
        "fewshot",
        {"data": {"set": "cifar100", "test": {"images": 2000, "classes": 20}, "image_size": 32}, "solver": _EPISODES},
    ),
    Reference(
        "MiniImageNet",
        "fewshot",
        {"data": {"set": "miniimagenet", "test": {"images": 12_000, "classes": 20}, "image_size": 84}}
        | {"solver": _EPISODES},
    ),
    Reference(
        "VOC07",
        "voc07_svm",
        {
            "data": {"set": "voc", "train": {"images": 5011}, "test": _VOC07_TEST, "image_size": 224},
            "solver": {"costs": "goyal", "folds": 3, "max_iter": 2000, "pool": "9k"},
        },
        squashed_view,
    ),
    Reference(
        "VOC07+12",
        "detection",
        {
            "data": {"set": "voc", "train": {"images": 16_551}, "test": _VOC07_TEST},
            "solver": {
                "backend": "detectron2",
                "arch": "resnet50",
                "norm_statistics": WHOLE_BATCH,
                "regions": 512,
                "proposals": 1000,
                "batch": 16,
                "steps": 25_000,
                "drops": [17_000],
                "lr": 0.02,
                "warmup": 1000,
                "weight_decay": 1e-4,
                "freeze": 2,
                "train_sizes": list(range(480, 801, 32)),
                "test_size": 800,
                "max_size": 1333,
            },
            "trials": 3,
        },
    ),
)

SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "miniimagenet": "MiniImageNet", "imagenet": "ImageNet"}
SETS |= {"places205": "Places205", "voc": "VOC"}


def reference_for(card: Mapping[str, Any]) -> Reference | None:
    """The paper's protocol of the same evaluator on the same data set, else on any: the one whose solver is closest."""
    same = [r for r in REFERENCES if r.evaluator == card.get("evaluator")]
    here = [r for r in same if r.card["data"]["set"] == _at(card, "data.set")] or same

    def distance(reference: Reference) -> int:
        stated = _stated(reference, card, "solver")
        return sum(not _same(_at(card, path), value) for path, value in stated.items())

    return min(here, key=distance, default=None)


def differences(card: Mapping[str, Any], reference: Reference) -> list[str]:
    """How a result was made otherwise than the paper's, a phrase each; empty where nothing that it states differs."""
    said: list[str] = []
    other_set = _at(card, "data.set") != reference.card["data"]["set"]
    for path, theirs in _stated(reference, card).items():
        ours = _at(card, path)
        if path == "data.set" or _same(ours, theirs):
            continue
        if ours is _ABSENT:
            what = path.removeprefix("solver.").replace(".", " ").replace("_", " ")
            said.append(f"{what} not said, in the paper {_value(theirs)}")
            continue
        said.append(_phrase(path, ours, theirs, _name(card), reference.name, other_set))
    if other_set and not any(f" of {_name(card)} instead" in phrase for phrase in said):
        said.insert(0, f"{_name(card)} instead of {reference.name}")
    return said


def report(card: Mapping[str, Any]) -> str | None:
    """The line that people read below a table, with the card's notes; None where nothing differs from the paper."""
    reference = reference_for(card)
    if reference is None:
        return f"{card.get('evaluator')}: not in the paper"
    said = [*differences(card, reference), *card.get("notes", ())]
    return f"{reference.evaluator}: {'; '.join(said)}" if said else None


def unlike(card: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What differs between two cards beside what must, since the networks do; empty where they may share a column."""
    mine, theirs = (_flat({k: v for k, v in c.items() if k not in OF_THE_MODEL}) for c in (card, other))
    paths = dict.fromkeys([*mine, *theirs])
    return [
        f"{path} {_value(mine.get(path, 'not said'))} instead of {_value(theirs.get(path, 'not said'))}"
        for path in paths
        if not _same(mine.get(path, _ABSENT), theirs.get(path, _ABSENT))
    ]


def share_a_column(card: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return not unlike(card, other)


def _stated(reference: Reference, card: Mapping[str, Any], *parts: str) -> dict[str, Any]:
    """What the paper says that concerns this card, by its path: all of it, or some parts."""
    stated = {name: value for name, value in reference.card.items() if name in (parts or reference.card)}
    if reference.test_view and not parts:
        side = _at(card, "data.image_size")
        side = reference.card["data"]["image_size"] if side is _ABSENT else side
        stated["view"] = {"test": reference.test_view(side)}
    flat = _flat(stated)
    if _at(card, "solver.features") == "cached":
        flat.pop("solver.crop_area", None)  # plain images, which is told already
    return flat


def _phrase(path: str, ours: Any, theirs: Any, own_set: str, their_set: str, other_set: bool) -> str:
    words = {"train": "training", "test": "test"}
    match path.split("."):
        case ["data", ("train" | "test") as role, what]:
            theirs_named = f"{their_set}'s {theirs:,}" if other_set else f"{theirs:,}"
            of = f" of {own_set}" if other_set else ""
            return f"{ours:,} {words[role]} {what}{of} instead of {theirs_named}"
        case ["data", "image_size"]:
            return f"{ours} pixels a side instead of {theirs}"
        case ["view", "test"]:
            return f"the test sees {ours} instead of {theirs}"
        case ["solver", "crop_area"]:
            shown = [f"{low:g} to {high:g}" for low, high in (ours, theirs)]
            return f"random crops of {shown[0]} of an image's area instead of {shown[1]}"
        case ["solver", "batch_norm"]:
            return (
                "batch norm before the classifier, the paper has none"
                if ours
                else "no batch norm before the classifier, the paper has it"
            )
        case ["solver", "features"]:
            said = {"cached": "features of the plain images", "online": "features of random crops"}
            return f"{said.get(ours, ours)} instead of {said.get(theirs, theirs)}"
        case ["solver", "nesterov"]:
            return f"{'with' if ours else 'without'} Nesterov momentum"
        case ["solver", "pool"]:
            said = {"global": "one value a channel", "9k": "about 9000 values", "4x4": "4x4 places"}
            return f"maps pooled to {said.get(ours, ours)} instead of {said.get(theirs, theirs)}"
        case ["solver", "backend"]:
            return f"trained by {ours} instead of {theirs}"
        case ["solver", "arch"]:
            return f"{ours} instead of {theirs}"
        case ["solver", "norm_statistics"]:
            return f"batch norm over {ours} instead of {theirs}"
        case [
            "solver",
            ("epochs" | "steps" | "episodes" | "folds" | "ways" | "queries" | "regions" | "proposals") as what,
        ]:
            return f"{ours:,} {what} instead of {theirs:,}"
        case ["solver", what]:
            return f"{what.replace('_', ' ')} {_value(ours)} instead of {_value(theirs)}"
        case ["trials"]:
            return f"{ours} trial{'s' * (ours != 1)} instead of {theirs}"
    return f"{path} {_value(ours)} instead of {_value(theirs)}"


def _name(card: Mapping[str, Any]) -> str:
    kind = _at(card, "data.set")
    return "other images" if kind is _ABSENT else SETS.get(str(kind), str(kind))


def _flat(card: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in card.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _at(card: Mapping[str, Any], path: str) -> Any:
    here: Any = card
    for part in path.split("."):
        if not isinstance(here, Mapping) or part not in here:
            return _ABSENT
        here = here[part]
    return here


def _same(a: Any, b: Any) -> bool:
    return _plain(a) == _plain(b)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
