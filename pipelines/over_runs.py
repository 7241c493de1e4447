"""Runs that differ in nothing but their seed, or one more setting: records go in, points with intervals come out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evaluation.interval import Interval, interval
from pipelines.records import Record

Point = tuple[float, float, float]  # where, the score, half of its interval: nan where there is none
_ANY = ("name", "seed", "data.path")  # what may differ always


def alike(record: Record, records: Iterable[Record], *free: str) -> list[Record]:
    """Those of the same experiment as `record`, but for the seed and for the settings that are free."""
    wanted = _without(record.settings, (*_ANY, *free))
    return [one for one in records if _without(one.settings, (*_ANY, *free)) == wanted]


def _without(settings: Any, names: Sequence[str], prefix: str = "") -> Any:
    if not isinstance(settings, dict):
        return settings
    return {
        name: _without(value, names, f"{prefix}{name}.")
        for name, value in settings.items()
        if f"{prefix}{name}" not in names
    }


def half_of(mean: Interval) -> float:
    """Not a number where there is one score only: no bar is drawn, which would look like no spread."""
    return math.nan if mean.half is None else mean.half


def bars_of(halves: Iterable[float]) -> str:
    """What the bars of a figure are, for the line below it."""
    none = [math.isnan(half) for half in halves]
    said = "no bars: one seed" if all(none) else "bars: 95% intervals over seeds"
    return f"{said}, none where there is one" if any(none) and not all(none) else said


def points(
    records: Iterable[Record], where: Callable[[Record], float], score: Callable[[Record], float]
) -> list[Point]:
    """The mean over seeds at each place, half of its 95% interval (nan for one seed); of a seed the last run counts."""
    found: dict[float, dict[int, float]] = {}
    for record in records:
        found.setdefault(where(record), {})[record.seed] = score(record)
    means = {place: interval([*by_seed.values()]) for place, by_seed in sorted(found.items())}
    return [(place, mean.mean, half_of(mean)) for place, mean in means.items()]
