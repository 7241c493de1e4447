"""The paper's tables with ours beside the paper's figures, from the runs of a store; or the study of its claims.

python pipelines/report.py --store store --output report     report/paper.md, paper.html and paper.tex
python pipelines/report.py findings --store store            the twelve claims, from `sweep.py findings`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from bownet.config import Settings
from bownet.masking import without_password
from pipelines.command_line import parse_settings
from pipelines.findings import findings_of
from pipelines.paper.listing import WIDE
from pipelines.program import guarded
from pipelines.records import Record, read_records
from pipelines.reporting.claims import LINEAR, findings_markdown, show_findings
from pipelines.reporting.collect import paper_report
from pipelines.reporting.html import as_html
from pipelines.reporting.latex import as_latex
from pipelines.reporting.markdown import as_markdown
from pipelines.reporting.model import Report
from pipelines.store import Store

FORMATS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "markdown": ("md", as_markdown),
    "html": ("html", as_html),
    "latex": ("tex", as_latex),
}


class ReportOptions(Settings):
    """What to report, and where to."""

    store: str = "store"
    """Folder or URI where results are kept."""
    output: str = "report"
    """Folder that the files are written to; it is made if absent."""
    formats: tuple[Literal["markdown", "html", "latex"], ...] = ("markdown", "html", "latex")
    """What is written."""
    scale: Literal["all", "full", "small", "tiny"] = "all"
    """Only runs of this scale."""
    metric: str = LINEAR
    """What the claims are judged by, such as fewshot/50shot; the paper's tables have all of theirs."""
    debug: bool = False
    """Show a traceback with an error."""


def report(arguments: Sequence[str], console: Console) -> None:
    study = bool(arguments) and arguments[0] == "findings"
    if arguments and not study and not arguments[0].startswith("-"):
        raise ValueError(f"report={arguments[0]!r}: unknown; findings, or nothing for the paper's tables")
    options = parse_settings(ReportOptions, __doc__, arguments[1:] if study else arguments)
    root = Store(options.store).root
    records = read_records(root)
    if not records:
        raise ValueError(
            f"store={options.store}: holds no finished run; make one with pipelines/full.py, or name another"
        )
    if study:
        report_findings(records, options, console)
        return
    made = paper_report(records, root, options.scale)
    cells = [c for t in made.tables for row in t.rows for line in row.lines for c in line.cells if c and c.runs]
    files = write_report(made, "paper", options)
    where = without_password(root)
    console.print(f"{len(records)} finished runs in {where}, {len(cells)} cells filled", soft_wrap=True, markup=False)
    for file in files:
        console.print(str(file), soft_wrap=True, markup=False)


def report_findings(records: Sequence[Record], options: ReportOptions, console: Console) -> None:
    """Of the last findings sweep of the store, or of a scale, and of others that changed the same experiment."""
    of_study = [record for record in records if record.sweep.get("name") == "findings"]
    of_study = [record for record in of_study if options.scale in ("all", record.scale)]
    of_any_base = len(of_study)
    of_study = [record for record in of_study if record.sweep.get("base") == of_study[-1].sweep.get("base")]
    scores = {name for record in of_study for row in record.rows for name in row["metrics"]}
    known = sorted(name for name in scores if not name.endswith("_ci95"))
    if of_study and options.metric not in known:
        raise ValueError(f"metric={options.metric}: unknown; the study has {', '.join(known)}")
    found = findings_of(of_study, options.metric)
    wide = console if console.is_terminal else Console(width=WIDE, highlight=False)
    show_findings(found, of_study, options.metric, wide)
    if others := of_any_base - len(of_study):
        console.print(
            f"{others} record{'s' * (others > 1)} of studies of other experiments left out; the last one is reported",
            soft_wrap=True,
        )
    file = folder_of(options) / "findings.md"
    file.write_text(findings_markdown(found, of_study, options.metric), encoding="utf-8")
    console.print(str(file), soft_wrap=True, markup=False)


def folder_of(options: ReportOptions) -> Path:
    folder = Path(options.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"output={options.output}: is a file, name a folder") from None
    return folder


def write_report(made: Report, name: str, options: ReportOptions) -> list[Path]:
    """A file for each format, in the folder that the options name."""
    folder, files = folder_of(options), []
    for format in options.formats:
        ending, render = FORMATS[format]
        files.append(folder / f"{name}.{ending}")
        files[-1].write_text(render(made), encoding="utf-8")
    return files


def main() -> int:
    return guarded(lambda console: report(sys.argv[1:], console))


if __name__ == "__main__":
    sys.exit(main())
