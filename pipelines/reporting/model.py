"""A report as data, before any format: tables of lines of cells, each cell with the runs behind it."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.paper.tables import Column, as_printed


@dataclass(frozen=True)
class RunLink:
    """A run: its id, and its page in MLflow's user interface where its experiment is known."""

    run: str
    address: str | None


@dataclass(frozen=True)
class Cell:
    """A number, what is known of its spread, and the runs that it is from; the paper's own have none."""

    value: float
    spread: float | None = None
    runs: tuple[RunLink, ...] = ()
    mark: str = ""  # of a footnote


@dataclass(frozen=True)
class Line:
    """One line below a row's name: the paper's figures, or ours at one scale on one data set."""

    who: str
    cells: tuple[Cell | None, ...]  # None where nothing was run
    scale: str = ""
    data: str = ""
    seeds: str = ""
    images: str = ""
    hours: str = ""


@dataclass(frozen=True)
class RowLines:
    name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class ReportTable:
    title: str
    columns: tuple[Column, ...]
    rows: tuple[RowLines, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    title: str
    tables: tuple[ReportTable, ...]
    notes: tuple[str, ...] = ()


MORE = ("scale", "data", "seeds", "images seen", "hours")  # headings of what a line says beside its cells
LEGEND = (
    "In percent. ± is the 95% interval over seeds (Student's t); with one seed that over few-shot episodes, or the "
    "deviation over trials. Images seen: training images that went through all networks up to this one. Hours: "
    "building all stages up to it, on whatever machine did. Numbers in brackets name the runs below."
)


def more(line: Line) -> tuple[str, ...]:
    return line.scale, line.data, line.seeds, line.images, line.hours


def text(cell: Cell | None, plus_minus: str = "±") -> str:
    """One decimal, as in the paper; two where the paper has them."""
    if cell is None:
        return ""
    if not cell.runs:
        return as_printed(cell.value)
    spread = f" {plus_minus} {cell.spread:.1f}" if cell.spread is not None else ""
    return f"{cell.value:.1f}{spread}{cell.mark}"


def numbered(report: Report) -> dict[tuple[RunLink, ...], int]:
    """A number for each set of runs, in the order of reading."""
    found: dict[tuple[RunLink, ...], int] = {}
    for table in report.tables:
        for row in table.rows:
            for line in row.lines:
                for cell in line.cells:
                    if cell is not None and cell.runs:
                        found.setdefault(cell.runs, len(found) + 1)
    return found
