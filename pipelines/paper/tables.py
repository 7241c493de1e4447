"""The paper's tables: results.json beside this file goes in; rows, columns, figures and who makes them come out.

A row knows the presets and models that make it, none if the paper quotes it from others; a column knows its metric.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FILE = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Source:
    """A model in the results of a preset: `BoWNet x2` of `cifar100/bownet-x3`."""

    preset: str
    model: str


@dataclass(frozen=True)
class Column:
    """A column of the paper: its key in the figures, its heading, the heading above it, and the metric that it shows.

    `{transfer}` in a metric is the kind of data that the transfer evaluator saw.
    """

    key: str
    title: str
    metric: str
    group: str = ""


@dataclass(frozen=True)
class Row:
    name: str
    figures: Mapping[str, float]
    sources: tuple[Source, ...]

    @property
    def quoted(self) -> bool:
        """Whether the paper has it from others, and nothing here trains it."""
        return not self.sources


def as_printed(figure: float) -> str:
    """With one decimal at least, as in the paper; 65 would look less exact than the 65.6 beside it."""
    return max(f"{figure:g}", f"{figure:.1f}", key=len)


@dataclass(frozen=True)
class Table:
    key: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


_FEWSHOT = tuple(Column(f"fewshot_{n}", f"n={n}", f"fewshot/{n}shot", "few-shot") for n in (1, 5, 10, 50))
_LINEAR = Column("linear", "linear", "linear/top1")
_TAPS = ("conv2", "conv3", "conv4", "conv5", "pool5")
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "cifar100": (*_FEWSHOT, _LINEAR),
    "miniimagenet": (*_FEWSHOT, _LINEAR),
    "miniimagenet_base_convnet": (*_FEWSHOT, _LINEAR),
    "voc07_svm": tuple(Column(tap, tap, f"voc07_svm/{tap}/map") for tap in ("conv4", "conv5")),
    "imagenet_places_linear": (
        *(Column(f"imagenet_{tap}", tap, f"linear/{tap}/top1", "ImageNet") for tap in _TAPS),
        *(Column(f"places205_{tap}", tap, f"{{transfer}}/{tap}/top1", "Places205") for tap in _TAPS),
    ),
    "voc_detection": tuple(Column(ap, ap.upper(), f"detection/{ap}") for ap in ("ap50", "ap75", "ap")),
    "cifar100_vocabulary_size": (_LINEAR,),
    "cifar100_ablations": (*_FEWSHOT, _LINEAR),
    "imagenet_small_scale": (Column("linear", "linear", "linear/conv5/top1"),),
}


def _models(*of: str) -> tuple[Source, ...]:
    """From "preset: model"."""
    pairs = [each.split(": ") for each in of]
    return tuple(Source(preset, model) for preset, model in pairs)


def _rotnet(family: str) -> tuple[Source, ...]:
    return _models(*(f"{family}/{name}: RotNet" for name in ("rotnet", "bownet", "bownet-x2", "bownet-x3")))


def _bownet(family: str) -> tuple[Source, ...]:
    return _models(*(f"{family}/{name}: BoWNet" for name in ("bownet", "bownet-x2", "bownet-x3")))


def _rounds(family: str) -> dict[str, tuple[Source, ...]]:
    return {
        "RotNet": _rotnet(family),
        "DeeperClustering": _models(f"{family}/deeper-clustering: Deeper Clustering"),
        "BoWNet": _bownet(family),
        "BoWNet x2": _models(f"{family}/bownet-x2: BoWNet x2", f"{family}/bownet-x3: BoWNet x2"),
        "BoWNet x3": _models(f"{family}/bownet-x3: BoWNet x3"),
    }


_IMAGENET = {f"BoWNet {tap}": _models(f"imagenet/bownet-{tap}: BoWNet x2") for tap in ("conv4", "conv5")}
_IMAGENET_ROTNET = {"RotNet": _models("imagenet/rotnet: RotNet")}
_SUPERVISED = _models("imagenet/supervised: supervised")
_RELLOC = _models("miniimagenet/relloc: RelLoc", "miniimagenet/relloc-bownet: RelLoc")
_SMALL = {f"BoW from {tap}, K=2048": f"bownet-{tap}" for tap in ("conv3", "conv4", "conv5")}
_SMALL |= {f"BoW from conv4, K={k}": f"bownet-conv4-{k}" for k in (8192, 20000)}

SOURCES: dict[str, dict[str, tuple[Source, ...]]] = {
    "cifar100": _rounds("cifar100")
    | {
        "Supervised": _models("cifar100/supervised: supervised"),
        "BoWNet w/o CutMix": _models("cifar100/bownet-no-cutmix: BoWNet"),
        "Sp-BoWNet": _models("cifar100/sp-bownet: BoWNet"),
    },
    "miniimagenet": _rounds("miniimagenet")
    | {"Supervised CC": _models("miniimagenet/supervised-cc: supervised CC"), "RelLoc": _RELLOC},
    "miniimagenet_base_convnet": {
        "RotNet": _rotnet("miniimagenet"),
        "RelLoc": _RELLOC,
        "RotNet -> BoWNet": _bownet("miniimagenet"),
        "RelLoc -> BoWNet": _models("miniimagenet/relloc-bownet: BoWNet"),
        "Random -> BoWNet": _models("miniimagenet/random-bownet: BoWNet x4"),
    },
    "voc07_svm": _IMAGENET | _IMAGENET_ROTNET,
    "imagenet_places_linear": _IMAGENET | _IMAGENET_ROTNET | {"ImageNet supervised": _SUPERVISED},
    "voc_detection": _IMAGENET | {"Supervised": _SUPERVISED},
    "cifar100_vocabulary_size": {
        f"K={k}": _models(f"cifar100/vocabulary-{k}: BoWNet") for k in (512, 1024, 2048, 4096)
    },
    "cifar100_ablations": {
        "RotNet": _rotnet("cifar100"),
        "BoWNet": _bownet("cifar100"),
        "BoWNet predict y(x~)": _models("cifar100/bownet-perturbed-target: BoWNet"),
        "BoWNet linear Omega": _models("cifar100/bownet-linear-omega: BoWNet"),
        "BoWNet binary": _models("cifar100/bownet-binary: BoWNet"),
    },
    "imagenet_small_scale": {row: _models(f"imagenet-small/{name}: BoWNet") for row, name in _SMALL.items()}
    | {"RotNet": _models("imagenet-small/rotnet: RotNet")},
}


@lru_cache(maxsize=1)
def paper_tables() -> tuple[Table, ...]:
    """All nine, in the order of the paper's own file of results."""
    stored = json.loads(FILE.read_text("utf-8"))
    return tuple(
        Table(
            key,
            table["caption"],
            _COLUMNS[key],
            tuple(Row(name, figures, SOURCES[key].get(name, ())) for name, figures in table["rows"].items()),
        )
        for key, table in stored.items()
    )


def rows_made_by(preset: str, model: str | None = None) -> list[str]:
    """The rows of the paper, such as "cifar100: BoWNet", that a preset makes; of one of its models if that is named."""
    return [
        f"{table.key}: {row.name}"
        for table in paper_tables()
        for row in table.rows
        if any(source.preset == preset and model in (None, source.model) for source in row.sources)
    ]
