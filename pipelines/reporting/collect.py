"""Records of runs go in; the paper's tables with ours beside them come out.

A run belongs to a row if its settings are those of a preset that makes the row, at the run's scale and on its data.
What it is called does not matter: a trial of a sweep counts, and a preset with another K on the command line does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from evaluation.interval import interval
from evaluation.paper import report as difference_report
from pipelines.paper.matching import presets_of, unlike_preset
from pipelines.paper.tables import Column, Row, Table, paper_tables, rows_made_by
from pipelines.records import Record
from pipelines.reporting.cost import cost_of
from pipelines.reporting.marks import Footnotes
from pipelines.reporting.model import Cell, Line, Report, ReportTable, RowLines, RunLink

SCALES = ("full", "small", "tiny")
UI = "http://127.0.0.1:5000"  # where `make mlflow` shows runs of a file
EVALUATOR_OF = {"{transfer}": "transfer"}  # by the first part of a column's metric, where they are not the same


def paper_report(records: Sequence[Record], root: str, scale: str = "all") -> Report:
    """All nine tables, with empty cells where nothing was run."""
    shown = [record for record in records if scale in ("all", record.scale) and "teacher" in record.settings]
    presets = {record.run: presets_of(record.settings) for record in shown}
    tables = tuple(_table(table, shown, presets, root) for table in paper_tables())
    return Report("The paper's tables, and ours", tables, tuple(_left_out(shown, presets)))


def _table(table: Table, records: Sequence[Record], presets: Mapping[str, tuple[str, ...]], root: str) -> ReportTable:
    notes: dict[str, None] = {}
    footnotes = Footnotes()
    rows = []
    for row in table.rows:
        cells = tuple(Cell(row.figures[c.key]) if c.key in row.figures else None for c in table.columns)
        lines = [Line("paper", cells)]
        for (scale, data), found in _groups(row, records, presets).items():
            lines.append(_ours(table.columns, found, scale, data, root, row.name, footnotes))
            notes |= dict.fromkeys(_differences(found, table.columns))
        if len(lines) == 1 and not row.quoted:
            lines.append(Line("ours", (None,) * len(table.columns)))
        rows.append(RowLines(row.name, tuple(lines)))
    return ReportTable(table.caption, table.columns, tuple(rows), (*footnotes.lines, *notes))


Found = dict[int, list[tuple[Record, str]]]  # by seed: runs and their model, the oldest first


def _groups(
    row: Row, records: Sequence[Record], presets: Mapping[str, tuple[str, ...]]
) -> dict[tuple[str, str], Found]:
    """Runs of a row by scale and data, and by seed."""
    groups: dict[tuple[str, str], Found] = {}
    for record in records:
        model = next((s.model for s in row.sources if s.preset in presets[record.run]), None)
        if model is not None and record.metrics(model):
            group = groups.setdefault((record.scale, record.settings["data"]["kind"]), {})
            group.setdefault(record.seed, []).append((record, model))
    return dict(sorted(groups.items(), key=lambda item: (SCALES.index(item[0][0]), item[0][1])))


def _ours(
    columns: Sequence[Column], found: Found, scale: str, data: str, root: str, row: str, footnotes: Footnotes
) -> Line:
    lasts = [runs[-1] for runs in found.values()]
    costs = [cost_of(root, _row(record, model)["artifacts"]["backbone"]) for record, model in lasts]
    known = [cost for cost in costs if cost is not None]
    return Line(
        "ours",
        tuple(_cell(column, found, scale, data, row, footnotes) for column in columns),
        scale,
        data,
        " ".join(map(str, sorted(found))),
        f"{sum(c.images for c in known) // len(known):,}" if known else "",
        f"{sum(c.seconds for c in known) / len(known) / 3600:.2f}" if known else "",
    )


def _cell(column: Column, found: Found, scale: str, data: str, row: str, footnotes: Footnotes) -> Cell | None:
    values, spreads, runs, cards = [], [], [], []
    for record, model in _behind(column, found):
        metric, metrics = _metric(column, record), record.metrics(model)
        values.append(metrics[metric])
        spreads.append(metrics.get(f"{metric}_ci95", metrics.get(f"{metric}_std")))
        runs.append(link(record))
        if card := _card(column, record, model):
            cards.append((f"{row} with seed {record.seed} ({scale}, {data})", card))
    if not values:
        return None
    over_seeds = interval(values)
    spread = spreads[0] if over_seeds.half is None else over_seeds.half
    return Cell(over_seeds.mean, spread, tuple(runs), footnotes.mark((column.key, scale, data), cards))


def _behind(column: Column, found: Found) -> list[tuple[Record, str]]:
    """Of each seed the latest run that has this column's metric: one that asked for less takes nothing away."""
    picked = []
    for _, runs in sorted(found.items()):
        picked += [one for one in runs if _metric(column, one[0]) in one[0].metrics(one[1])][-1:]
    return picked


def _metric(column: Column, record: Record) -> str:
    return column.metric.format(transfer=record.settings["transfer"]["data"]["kind"])


def link(record: Record) -> RunLink:
    """To the server that has the run, without anybody's name or password; to `make mlflow` where it is in a file."""
    experiment = record.mlflow.get("experiment_id")
    server = urlsplit(str(record.mlflow.get("tracking_uri", "")))
    remote = server.scheme in ("http", "https")
    ui = f"{server.scheme}://{server.netloc.rpartition('@')[2]}{server.path.rstrip('/')}" if remote else UI
    return RunLink(record.run, f"{ui}/#/experiments/{experiment}/runs/{record.run}" if experiment else None)


def _differences(found: Found, columns: Sequence[Column]) -> list[str]:
    """How our protocols differ from the paper's, for the numbers of these columns."""
    said = []
    for column in columns:
        for record, model in _behind(column, found):
            card = _card(column, record, model)
            line = difference_report(card) if card else None
            said.append(f"{record.scale}, {record.settings['data']['kind']}: {line}" if line else "")
    return [line for line in dict.fromkeys(said) if line]


def _card(column: Column, record: Record, model: str) -> dict[str, Any] | None:
    """How the number of a column was made."""
    evaluator = column.metric.partition("/")[0]
    card: dict[str, Any] | None = _row(record, model)["protocol"].get(EVALUATOR_OF.get(evaluator, evaluator))
    return card


def _left_out(records: Sequence[Record], presets: Mapping[str, tuple[str, ...]]) -> list[str]:
    said = []
    for record in records:
        name = str(record.settings["name"])
        if not presets[record.run] and rows_made_by(name):
            unlike = unlike_preset(record.settings, name)
            few = "; ".join(unlike[:4]) + (f" and {len(unlike) - 4} more" if len(unlike) > 4 else "")
            said.append(f"run {record.run} of {name} is in no row, since its settings are not the preset's: {few}")
    return said


def _row(record: Record, model: str) -> dict[str, Any]:
    return next(row for row in record.rows if row["name"] == model)
