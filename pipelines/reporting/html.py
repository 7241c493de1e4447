"""A report as one HTML page without anything from outside. All text is escaped."""

from __future__ import annotations

from html import escape
from itertools import groupby

from pipelines.reporting.model import LEGEND, MORE, Cell, Report, ReportTable, RunLink, more, numbered, text

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child, td:nth-child(2) { text-align: left; }
tr.paper td { color: #666; } tr.ours td { border-bottom-color: #aaa; }
.scroll { overflow-x: auto; } small, .reduced { color: #a50; }
"""


def as_html(report: Report) -> str:
    numbers = numbered(report)
    title = escape(report.title)
    body = [f"<h1>{title}</h1>", f"<p>{escape(LEGEND)}</p>"]
    for table in report.tables:
        body += [f"<h2>{escape(table.title)}</h2>", f'<div class="scroll">{table_html(table, numbers)}</div>']
        body += _list(table.notes)
    body += _list(report.notes)
    if numbers:
        runs = [f'<li id="run-{n}" value="{n}">{", ".join(map(_run, runs))}</li>' for runs, n in numbers.items()]
        body += ["<h2>Runs</h2>", f"<ol>{''.join(runs)}</ol>"]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _list(notes: tuple[str, ...]) -> list[str]:
    return [f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"] if notes else []


def _run(one: RunLink) -> str:
    name = escape(one.run)
    return f'<a href="{escape(one.address)}">{name}</a>' if one.address else name


def table_html(table: ReportTable, numbers: dict[tuple[RunLink, ...], int]) -> str:
    above = [(group, len([*columns])) for group, columns in groupby(table.columns, lambda column: column.group)]
    rows = []
    if any(group for group, _ in above):
        spans = "".join(f'<th colspan="{n}">{escape(group)}</th>' for group, n in above)
        rows.append(f'<tr><th></th><th></th>{spans}<th colspan="{len(MORE)}"></th></tr>')
    rows.append(
        f"<tr><th>row</th><th></th>{''.join(f'<th>{escape(c.title)}</th>' for c in table.columns)}{_heads()}</tr>"
    )
    for row in table.rows:
        for i, line in enumerate(row.lines):
            cells = "".join(f"<td>{_cell(cell, numbers)}</td>" for cell in line.cells)
            said = "".join(f"<td>{escape(word)}</td>" for word in more(line))
            name = escape(row.name) if i == 0 else ""
            rows.append(f'<tr class="{line.who}"><td>{name}</td><td>{line.who}</td>{cells}{said}</tr>')
    return f"<table>{''.join(rows)}</table>"


def _heads() -> str:
    return "".join(f"<th>{name}</th>" for name in MORE)


def _cell(cell: Cell | None, numbers: dict[tuple[RunLink, ...], int]) -> str:
    if cell is None or not cell.runs:
        return escape(text(cell))
    number, names = numbers[cell.runs], escape(", ".join(one.run for one in cell.runs))
    return f'{escape(text(cell))} <a href="#run-{number}" title="{names}">[{number}]</a>'
