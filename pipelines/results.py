"""What people read at the end: rows go in; a table, footnotes and differences to the paper's protocols come out."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from evaluation.paper import report as difference_report
from evaluation.paper import unlike
from pipelines.evaluators import EVALUATORS
from pipelines.progress import print_whole

MARKS = "*†‡§¶"
MOST = 4  # differences that a footnote names
Rows = list[dict[str, Any]]  # as Row.result gives them


def show_results(rows: Rows, console: Console) -> None:
    columns = columns_of(rows)
    if not columns:
        console.print("No score: nothing could be evaluated on these images.")
        return
    marks, notes = marked(rows)
    console.print(_title(rows), soft_wrap=True)  # wider than a narrow table
    grid = [["model", *(heading(metric) for _, metric in columns)]]
    for row in rows:
        cells = [cell(row["metrics"], metric) + marks.get((row["name"], name), "") for name, metric in columns]
        grid.append([row["name"], *cells])
    print_whole(fitting(grid, console), console)
    said = [*notes, *comparisons(rows), *differences(rows)]
    for line in said:
        console.print(escape(line), highlight=False, soft_wrap=True)


def fitting(grid: Sequence[Sequence[str]], console: Console) -> Table:
    """A line for each row of the grid; or for each column, where that is too wide for the console."""
    upright = _table(grid)
    if Measurement.get(console, console.options.update(max_width=10_000), upright).maximum <= console.width:
        return upright
    return _table(list(zip(*grid, strict=True)))


def _table(grid: Sequence[Sequence[str]]) -> Table:
    table = Table()
    for i, name in enumerate(grid[0]):
        table.add_column(escape(name), justify="right" if i else "left")
    for row in grid[1:]:
        table.add_row(*map(escape, row))
    return table


def columns_of(rows: Rows) -> list[tuple[str, str]]:
    """Evaluator and metric of each column: what any row has of what the evaluators want to be shown."""
    found: dict[tuple[str, str], None] = {}
    for name, evaluator in EVALUATORS.items():
        metrics = dict.fromkeys(metric for row in rows for metric in row["metrics"])
        shown = [m for m in metrics if any(fnmatchcase(m, pattern) for pattern in evaluator.columns)]
        found |= dict.fromkeys((name, metric) for metric in shown)
    return list(found)


def heading(metric: str) -> str:
    return metric.removeprefix("fewshot/").replace("shot", "-shot").replace("/", " ").replace("_", " ")


def cell(metrics: dict[str, float], metric: str) -> str:
    if metric not in metrics:
        return "-"
    spread = metrics.get(f"{metric}_ci95", metrics.get(f"{metric}_std"))
    return f"{metrics[metric]:.1f}" + (f" ± {spread:.1f}" if spread is not None else "")


def marked(rows: Rows) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Marks by row and evaluator, and their footnotes: a score made otherwise than the first one of its column."""
    marks: dict[tuple[str, str], str] = {}
    notes: dict[str, str] = {}
    for name in EVALUATORS:
        cards = [(row["name"], row["protocol"][name]) for row in rows if name in row["protocol"]]
        for model, card in cards[1:]:
            if unlike_first := unlike(card, cards[0][1]):
                more = f" and {len(unlike_first) - MOST} more" if len(unlike_first) > MOST else ""
                text = f"{name} made otherwise than for {cards[0][0]}: {'; '.join(unlike_first[:MOST])}{more}"
                marks[model, name] = " " + notes.setdefault(text, mark(len(notes)))
    return marks, [f"{mark} {text}" for text, mark in notes.items()]


def mark(number: int) -> str:
    """Of the footnote with this number, from 0: *, †, ..., then **, ††: no two have the same."""
    return MARKS[number % len(MARKS)] * (number // len(MARKS) + 1)


def comparisons(rows: Rows) -> list[str]:
    """Paired comparisons of few-shot episodes, a line each."""
    lines = []
    for row in rows:
        for shots, difference in row.get("comparison", {}).get("differences", {}).items():
            mean, interval = difference["mean"], difference["ci95"]
            verdict = "" if abs(mean) > interval else ", no difference that is sure"
            lines.append(
                f"{row['name']} against {row['comparison']['with']}, {shots.replace('shot', '-shot')} on the same "
                f"episodes: {mean:+.2f} ± {interval:.2f}{verdict}"
            )
    return lines


def differences(rows: Rows) -> list[str]:
    """How each protocol differs from the paper's, each said once."""
    said = [difference_report(card) for row in rows for card in row["protocol"].values()]
    lines = list(dict.fromkeys(line for line in said if line))
    return ["Protocols against the paper's:", *(f"  {line}" for line in lines)] if lines else []


def _title(rows: Rows) -> str:
    metrics = {metric for row in rows for metric in row["metrics"]}
    scales = {row.get("scale", "full") for row in rows} - {"full"}
    title = f"Reduced scale ({', '.join(sorted(scales))}), in percent" if scales else "In percent"
    if any(metric.endswith("_ci95") for metric in metrics):
        title += "; ± is the 95% interval over few-shot episodes"
    if any(metric.endswith("_std") for metric in metrics):
        title += "; ± is the standard deviation over trials" if "±" not in title else ", or the deviation over trials"
    return title
