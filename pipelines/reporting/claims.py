"""The findings study for people: findings go in; a table on the console and a Markdown file come out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluation.interval import Interval
from pipelines.findings import ALIKE, FAR, Finding
from pipelines.records import Record
from pipelines.reporting.markdown import plain

HEADINGS = ("claim", "", "compared", "difference", "seeds", "paper", "verdict")


def legend(records: Sequence[Record]) -> str:
    """What the numbers are."""
    of = ", ".join(sorted({f"{record.settings['name']} ({record.scale})" for record in records}))
    return (
        f"{of or 'Nothing was run'}. Differences of linear accuracy in points, paired by seed, with 95% intervals over "
        f"seeds (Student's t). Alike is within {ALIKE:g} point, far and much are above {FAR:g} points. A verdict needs "
        "the whole interval on one side. The paper's differences are of its own data sets and scale."
    )


def show_findings(found: Sequence[Finding], records: Sequence[Record], console: Console) -> None:
    table = Table(title="The paper's claims", title_justify="left")
    for name in HEADINGS:
        table.add_column(name, overflow="fold")
    for finding in found:
        table.add_row(*(escape(cell) for cell in _cells(finding)))
    console.print(table)
    console.print(escape(legend(records)), soft_wrap=True, highlight=False)


def findings_markdown(found: Sequence[Finding], records: Sequence[Record]) -> str:
    """With the runs behind each claim."""
    lines = ["# The paper's claims", "", legend(records), "", f"| {' | '.join(HEADINGS)} |"]
    lines.append("|" + " --- |" * len(HEADINGS))
    for finding in found:
        cells = (plain(cell).replace("\n", "<br>") for cell in _cells(finding, "; "))
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Runs:", ""]
    for finding in found:
        lines.append(f"- {finding.claim.number}: {', '.join(f'`{run}`' for run in finding.runs) or 'none'}")
    return "\n".join(lines) + "\n"


def _cells(finding: Finding, between: str = "\n") -> tuple[str, ...]:
    claim = finding.claim
    counts = {d.count for d in finding.differences if d is not None}
    return (
        str(claim.number),
        claim.text,
        between.join(comparison.words() for comparison in claim.comparisons),
        between.join(_difference(difference) for difference in finding.differences),
        " ".join(map(str, sorted(counts))),
        claim.paper,
        finding.verdict,
    )


def _difference(difference: Interval | None) -> str:
    if difference is None:
        return "-"
    return f"{difference.mean:+.2f}" + (f" ± {difference.half:.2f}" if difference.half is not None else "")
