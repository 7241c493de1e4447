"""What people read at the end of a sweep: records go in; points with means over seeds, a table, a figure come out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluation.interval import Interval, interval
from pipelines.over_runs import bars_of, half_of
from pipelines.progress import print_whole
from pipelines.records import Record
from pipelines.reporting.marks import Footnotes
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
    by_run = {record.run: record for record in records}
    footnotes = Footnotes()

    def cell(point: Summary, evaluator: str, metric: str) -> str:
        """With a mark where it was made otherwise than the first of its column."""
        if metric not in point.scores:
            return "-"
        cards = []
        for seed, run in zip(point.seeds, point.runs, strict=True):
            if card := by_run[run].rows[-1].get("protocol", {}).get(evaluator):
                cards.append((f"{point.label}, seed {seed}", card))
        mark = footnotes.mark((evaluator,), cards)
        return said(point.scores[metric]) + (f" {mark}" if mark else "")

    table = Table()
    table.add_column("point", overflow="fold")
    for _, metric in columns:
        table.add_column(heading(metric), justify="right")
    for point in points:
        cells = [cell(point, evaluator, metric) for evaluator, metric in columns]
        of = f"{point.model}, seed{'s' * (len(point.seeds) > 1)} {' '.join(map(str, point.seeds))}"
        table.add_row(f"{escape(point.label)}\n[dim]{escape(of)}[/dim]", *cells)
    print_whole(table, console)
    for line in footnotes.lines:
        console.print(escape(line), highlight=False, soft_wrap=True)


def said(score: Interval) -> str:
    return f"{score.mean:.1f}" + (f" ± {score.half:.1f}" if score.half is not None else "")


def draw(points: Sequence[Summary], metric: str, title: str, path: Path) -> None:
    """The metric of each point with its interval: against the swept number where there is one, else a line each."""
    from pipelines.drawing.lines import draw_lines, draw_named
    from pipelines.drawing.save import save_png
    from pipelines.drawing.style import sign

    shown = [point for point in points if metric in point.scores]
    scores = [(point.scores[metric].mean, half_of(point.scores[metric])) for point in shown]
    title, y = textwrap.fill(title, 60), f"{heading(metric)}, %"
    if axis := axis_of(shown):
        name, x = axis
        line = [(at, mean, half) for at, (mean, half) in zip(x, scores, strict=True)]
        figure = draw_lines({"": line}, title, name, y, log=min(x) > 0 and max(x) >= 8 * min(x))
    else:
        labels = [textwrap.fill(point.label, 36) for point in shown]
        figure = draw_named([(label, *score) for label, score in zip(labels, scores, strict=True)], title, y)
    seeds = sorted({seed for point in shown for seed in point.seeds})
    sign(figure, f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}; {bars_of([half for _, half in scores])}")
    save_png(figure, path)


def axis_of(points: Sequence[Summary]) -> tuple[str, list[float]] | None:
    """The one setting that differs, and its values, if it is a number of every point."""
    names = {name for point in points for name in point.settings}
    differ = [name for name in names if len({repr(point.settings.get(name)) for point in points}) > 1]
    if len(differ) != 1:
        return None
    values = [point.settings.get(differ[0]) for point in points]
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return (differ[0], numbers) if len(numbers) == len(values) else None
