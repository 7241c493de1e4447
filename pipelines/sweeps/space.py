"""Which settings a sweep tries: `name=v1,v2` goes in, points come out, each a change of an experiment."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import ValidationError

from bownet.config import Experiment
from bownet.masking import without_password
from pipelines.command_line import field_of, in_one_line, nearest_name

NOT_SWEPT = {"seed": "--seeds", "scale": "--scale", "name": "--name"}  # what a sweep sets itself, by what says it
MOST_CHECKED = 4096  # combinations


@dataclass(frozen=True)
class Point:
    """What one trial changes: settings by their dotted names, and what people call it."""

    label: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """The values of one setting: a list, or a range of numbers from `low` to `high`, both included."""

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    whole: bool = False  # a range of whole numbers
    log: bool = False  # a range in which 0.001 to 0.01 is as likely as 0.01 to 0.1

    @property
    def is_range(self) -> bool:
        return not self.values

    @property
    def ends(self) -> tuple[Any, ...]:
        """Every value, or both ends."""
        return self.values or ((int(self.low), int(self.high)) if self.whole else (self.low, self.high))

    def draw(self, rng: random.Random) -> Any:
        if not self.is_range:
            return rng.choice(self.values)
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            return round(value) if self.whole else min(max(value, self.low), self.high)
        return rng.randint(int(self.low), int(self.high)) if self.whole else rng.uniform(self.low, self.high)


def parse_space(texts: Sequence[str]) -> tuple[Axis, ...]:
    """From `vocabulary.size=512,1024` and `student.optimiser.lr=0.01..0.3:log`; a list as a value is in brackets."""
    axes = []
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not equals or not name or not values:
            raise ValueError(f"space={text}: write name=v1,v2, name=low..high or name=low..high:log")
        if match := re.fullmatch(r"([-+.\deE]+?)\.\.([-+.\deE]+)(:log)?", values):
            low, high = float(match[1]), float(match[2])
            if low >= high:
                raise ValueError(f"space={text}: the range is empty, write the smaller number first")
            if match[3] and low <= 0:
                raise ValueError(f"space={text}: log needs numbers above 0, begin with a small one")
            whole = all(re.fullmatch(r"[-+]?\d+", end) for end in (match[1], match[2]))
            axes.append(Axis(name, low=low, high=high, whole=whole, log=bool(match[3])))
        else:
            axes.append(Axis(name, tuple(_value(v) for v in re.split(r",(?![^\[]*\])", values))))
    repeated = {axis.name for axis in axes if sum(a.name == axis.name for a in axes) > 1}
    if repeated:
        raise ValueError(f"space={min(repeated)}=...: is there twice, list all of its values once")
    return tuple(axes)


def grid(axes: Sequence[Axis]) -> list[Point]:
    """Every combination."""
    for axis in axes:
        if axis.is_range:
            raise ValueError(f"space={axis.name}={axis.low:g}..{axis.high:g}: a grid needs values; use --search random")
    chosen = itertools.product(*(axis.values for axis in axes))
    return [_point(axes, values) for values in chosen]


def drawn(axes: Sequence[Axis], samples: int, seed: int) -> list[Point]:
    """So many random points, each once; the same for the same seed."""
    rng = random.Random(seed)
    points: dict[str, Point] = {}
    for _ in range(100 * samples):  # of few combinations there may not be so many
        point = _point(axes, [axis.draw(rng) for axis in axes])
        points.setdefault(point.label, point)
        if len(points) == samples:
            break
    return [*points.values()]


def checked(axes: Sequence[Axis], exp: Experiment) -> tuple[Axis, ...]:
    """The same axes, of which every value and both ends make an experiment with those of all others.

    Between two whole numbers lie whole ones, unless the setting takes fractions.
    """
    for axis in axes:
        if axis.name in NOT_SWEPT:
            raise ValueError(f"space={axis.name}=...: is no setting to sweep, use {NOT_SWEPT[axis.name]}")
    axes = tuple(replace(axis, whole=axis.whole and not _takes_fractions(axis.name)) for axis in axes)
    for values in itertools.islice(itertools.product(*(axis.ends for axis in axes)), MOST_CHECKED):
        changed(exp, _point(axes, values).settings)
    return axes


def _takes_fractions(name: str) -> bool:
    def within(annotation: Any) -> bool:
        return annotation is float or any(within(part) for part in get_args(annotation))

    field = field_of(Experiment, name.split("."))
    return field is not None and within(field.annotation)


def changed(exp: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """The experiment with these settings, checked. A mistake is a ValueError in one line."""
    made = exp.model_dump()
    for name, value in settings.items():
        *path, leaf = name.split(".")
        here: Any = made
        for part in path:
            here = here.get(part) if isinstance(here, dict) else None
        if not isinstance(here, dict) or leaf not in here:
            raise ValueError(f"space={name}: unknown setting{nearest_name(name, _names(made))}")
        here[leaf] = value
    try:
        return Experiment.model_validate(made)
    except ValidationError as error:
        raise ValueError(in_one_line(error, Experiment)) from None


def label_of(settings: Mapping[str, Any]) -> str:
    return without_password(" ".join(f"{name}={_text(value)}" for name, value in settings.items()))


def _point(axes: Sequence[Axis], values: Sequence[Any]) -> Point:
    settings = {axis.name: value for axis, value in zip(axes, values, strict=True)}
    return Point(label_of(settings), settings)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value).strip('"')


def _value(text: str) -> Any:
    """A JSON value, True, False or None; else the text itself."""
    known = {"True": True, "False": False, "None": None}
    if text in known:
        return known[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _names(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    return [
        name
        for key, value in settings.items()
        for name in (_names(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [prefix + key])
    ]
