"""Settings of a run go in; the presets of the paper whose settings they are, at its scale and on its data, come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bownet.config import Experiment
from pipelines.evaluators import EVALUATORS
from pipelines.presets import PRESETS
from pipelines.scale import at_scale, of_kind

# Where images lie, how they are stored, what is judged and when a run gives up change no number that is shown.
OF_NO_MATTER = {"name", "seed", "evaluators", "judged", "scale", "data.shard_size", "data.max_bad_fraction"}
OF_NO_MATTER |= {"vocabulary.min_perplexity", "proxy", "transfer.data.shard_size"}
OF_NO_MATTER |= {"data.path", "transfer.data.path", "voc07_svm.path", "detection.path"}

OF_A_TRAINED_TEACHER = ("teacher.optimiser.", "teacher.head_layers", "teacher.pad")

Settings = Mapping[str, Any]


def presets_of(settings: Settings) -> tuple[str, ...]:
    """The presets of the paper whose settings these are; none for what is no experiment."""
    return tuple(name for name in PRESETS if not unlike_preset(settings, name)) if "teacher" in settings else ()


def unlike_preset(settings: Settings, preset: str) -> list[str]:
    """Settings of the run that are not the preset's at this scale and on this data: `vocabulary.size 64 (2048)`."""
    exp = preset_as(preset, settings)
    mine, theirs = flat(settings), flat(exp.model_dump(mode="json"))
    return [
        f"{name} {mine[name]} ({theirs[name]})"
        for name in mine
        if name in theirs and _matters(name, exp) and mine[name] != theirs[name]
    ]


def preset_as(preset: str, settings: Settings) -> Experiment:
    """The preset at the run's scale and on its kind of data."""
    return of_kind(at_scale(PRESETS[preset](), str(settings.get("scale", "full"))), settings["data"]["kind"])


def flat(settings: Settings, prefix: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in settings.items():
        made |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return made


def _matters(name: str, exp: Experiment) -> bool:
    """Also not: settings of evaluators that the preset does not have, and of a teacher's task that it is not."""
    first = name.partition(".")[0]
    unused = first in EVALUATORS and first not in exp.evaluators
    unused |= name == "data.novel_per_class" and "fewshot" not in exp.evaluators
    unused |= name in ("teacher.clusters", "teacher.renew_every") and exp.teacher.kind != "deeper_clustering"
    unused |= exp.teacher.kind == "random" and name.startswith(OF_A_TRAINED_TEACHER)
    return not (unused or name in OF_NO_MATTER or first in OF_NO_MATTER)
