"""What people read at the end of a sweep: records go in; points with means over seeds, a table, a figure come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluation.interval import Interval, interval
from pipelines.records import Record
from pipelines.results import columns_of, heading


@dataclass(frozen=True)
class Summary:
    """One point: the last model's scores over seeds, and the runs behind them."""

    label: str
    settings: dict[str, Any]
    model: str
    seeds: tuple[int, ...]
    scores: dict[str, Interval]
    runs: tuple[str, ...]


def summaries(records: Sequence[Record], order: Sequence[str] = ()) -> list[Summary]:
    """Points by their labels in this order, then the others; of two records with one point and seed the later."""
    points: dict[str, dict[int, Record]] = {label: {} for label in order}
    for record in records:
        points.setdefault(record.sweep["label"], {})[record.seed] = record
    made = []
    for label, by_seed in points.items():
        if not by_seed:
            continue
        some = [by_seed[seed] for seed in sorted(by_seed)]
        rows = [record.rows[-1] for record in some]
        metrics = dict.fromkeys(name for row in rows for name in row["metrics"])
        scores = {m: interval([row["metrics"][m] for row in rows if m in row["metrics"]]) for m in metrics}
        runs = tuple(record.run for record in some)
        settings = dict(some[0].sweep["settings"])
        made.append(Summary(label, settings, rows[0]["name"], tuple(sorted(by_seed)), scores, runs))
    return made


def show(points: Sequence[Summary], records: Sequence[Record], title: str, console: Console) -> None:
    columns = columns_of([record.rows[-1] for record in records if record.rows])
    console.print(escape(title), soft_wrap=True)
    table = Table()
    table.add_column("point", overflow="fold")
    for _, metric in columns:
        table.add_column(heading(metric), justify="right")
    for point in points:
        cells = [said(point.scores.get(metric)) for _, metric in columns]
        of = f"{point.model}, seed{'s' * (len(point.seeds) > 1)} {' '.join(map(str, point.seeds))}"
        table.add_row(f"{escape(point.label)}\n[dim]{escape(of)}[/dim]", *cells)
    console.print(table)


def said(score: Interval | None) -> str:
    if score is None:
        return "-"
    return f"{score.mean:.1f}" + (f" ± {score.half:.1f}" if score.half is not None else "")


def draw(points: Sequence[Summary], metric: str, title: str, path: Path) -> None:
    """The metric of each point with its interval, against the swept number where there is one, else side by side."""
    from matplotlib.figure import Figure

    shown = [point for point in points if metric in point.scores]
    scores = [point.scores[metric] for point in shown]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    x, name = _axis(shown)
    heights = [score.mean for score in scores]
    axes.errorbar(x, heights, yerr=[score.half or 0 for score in scores], fmt="o-" if name else "o", capsize=4)
    if name:
        axes.set_xlabel(name)
        if min(x, default=0) > 0 and max(x) >= 8 * min(x):
            axes.set_xscale("log", base=2)
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.minorticks_off()
    else:
        axes.set_xticks(x, [point.label for point in shown], rotation=30, ha="right")
    axes.set_ylabel(f"{heading(metric)}, %")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _axis(points: Sequence[Summary]) -> tuple[list[float], str]:
    """Positions, and the one swept setting if it is the same number setting of every point."""
    names = {tuple(point.settings) for point in points}
    if len(names) == 1 and len(name := next(iter(names))) == 1:
        values = [point.settings[name[0]] for point in points]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return [float(value) for value in values], name[0]
    return [float(i) for i in range(len(points))], ""
