"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.reporting.model import LEGEND, MORE, Cell, Report, ReportTable, RunLink, more, numbered, text


def as_markdown(report: Report) -> str:
    numbers = numbered(report)
    parts = [f"# {plain(report.title)}", LEGEND]
    for table in report.tables:
        parts += [f"## {plain(table.title)}", _table(table, numbers)]
        parts += ["\n".join(f"- {plain(note)}" for note in table.notes)] if table.notes else []
    parts += ["\n".join(f"- {plain(note)}" for note in report.notes)] if report.notes else []
    if numbers:
        parts += ["## Runs", "\n".join(run_item(number, runs) for runs, number in numbers.items())]
    return "\n\n".join(parts) + "\n"


def plain(words: str) -> str:
    """Text that no table or list can mistake for its own marks."""
    for mark in "\\`*_|<>[]":
        words = words.replace(mark, f"\\{mark}")
    return " ".join(words.split())


def reference(number: int) -> str:
    """To the list of runs below, behind what is said."""
    return rf" [\[{number}\]](#run-{number})"


def run_item(number: int, runs: Sequence[RunLink]) -> str:
    """With an anchor that cells link to: `[1]: ...` would be the definition of a link, which pages do not show."""
    said = [f"[{plain(one.run)}](<{one.address}>)" if one.address else plain(one.run) for one in runs]
    return f'- <a id="run-{number}"></a>{number}: {", ".join(said)}'


def _table(table: ReportTable, numbers: dict[tuple[RunLink, ...], int]) -> str:
    headings = ["row", "", *(f"{c.group} {c.title}".strip() for c in table.columns), *MORE]
    lines = [_line(headings), _line(["---", "---", *["---:"] * (len(headings) - 2)])]
    for row in table.rows:
        for i, line in enumerate(row.lines):
            cells = [_cell(cell, numbers) for cell in line.cells]
            lines.append(_line([plain(row.name) if i == 0 else "", line.who, *cells, *more(line)]))
    return "\n".join(lines)


def _cell(cell: Cell | None, numbers: dict[tuple[RunLink, ...], int]) -> str:
    return plain(text(cell)) + (reference(n) if (n := numbers.get(cell.runs if cell else ())) else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
