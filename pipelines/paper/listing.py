"""`--help` and `--list`: the presets by name, and in the paper's tables with the paper's figures."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from pipelines.paper.tables import Table, as_printed, paper_tables
from pipelines.presets import PRESETS, first_line

WIDE = 150  # columns where there is no terminal that says how many it has


def show_overview(description: str, console: Console) -> None:
    """What the program is, and every preset in a line."""
    console = _wide(console)
    console.print(escape(description.strip()), highlight=False)
    console.print("\nusage: PRESET [--help] [--scale small|tiny] [--SETTING VALUE ...]\n", markup=False)
    table = RichTable(title="Presets; --list shows them beside the paper's figures", title_justify="left", box=None)
    table.add_column("preset", no_wrap=True)
    table.add_column("what it is")
    for name in PRESETS:
        table.add_row(name, escape(first_line(name)))
    console.print(table)


def show_list(_: str, console: Console) -> None:
    """Every table of the paper, with the preset that makes each row; then the presets of no table."""
    console = _wide(console)
    listed: set[str] = set()
    for table in paper_tables():
        listed |= {source.preset for row in table.rows for source in row.sources}
        console.print(_as_rich(table))
    others = RichTable(title="Not in the paper", title_justify="left")
    others.add_column("preset", no_wrap=True)
    others.add_column("what it is")
    for name in PRESETS:
        if name not in listed:
            others.add_row(name, escape(first_line(name)))
    console.print(others)
    console.print("Figures are the paper's, in percent; - is a row that the paper quotes from others.")


def _as_rich(table: Table) -> RichTable:
    made = RichTable(title=escape(table.caption), title_justify="left")
    made.add_column("row", no_wrap=True)
    made.add_column("preset", no_wrap=True)
    for column in table.columns:
        made.add_column(f"{column.group} {column.title}".strip(), justify="right")
    for row in table.rows:
        figures = [as_printed(row.figures[c.key]) if c.key in row.figures else "" for c in table.columns]
        made.add_row(escape(row.name), row.sources[0].preset if row.sources else "-", *figures)
    return made


def _wide(console: Console) -> Console:
    """Into a file or a pipe nothing is folded."""
    return console if console.is_terminal else Console(width=WIDE, highlight=False)
