"""The findings study for people: findings go in; a table on the console and a Markdown file come out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluation.interval import Interval
from pipelines.findings import ALIKE, FAR, Finding, scores_of
from pipelines.records import Record
from pipelines.reporting.collect import link
from pipelines.reporting.markdown import plain, reference, run_item
from pipelines.reporting.model import RunLink

HEADINGS = ("claim", "", "compared", "difference", "seeds", "paper", "verdict")
SCORES = ("point", "network", "score, %", "by seed")
LINEAR = "linear/top1"


def legend(records: Sequence[Record], metric: str = LINEAR) -> str:
    """What the numbers are."""
    score = "linear accuracy" if metric == LINEAR else metric
    of = ", ".join(sorted({f"{record.settings['name']} ({record.scale})" for record in records}))
    return (
        f"{of or 'Nothing was run'}. Differences of {score} in points, paired by seed, with 95% intervals over "
        f"seeds (Student's t). Alike is within {ALIKE:g} point, far and much are above {FAR:g} points. A verdict needs "
        "the whole interval on one side. The paper's differences are of its own data sets and scale."
    )


def show_findings(found: Sequence[Finding], records: Sequence[Record], metric: str, console: Console) -> None:
    table = Table(title="The paper's claims", title_justify="left")
    for name in HEADINGS:
        table.add_column(name, overflow="fold")
    for finding in found:
        table.add_row(*(escape(cell) for cell in cells_of(finding, metric)))
    console.print(table)
    console.print(escape(legend(records, metric)), soft_wrap=True, highlight=False)


def findings_markdown(found: Sequence[Finding], records: Sequence[Record], metric: str = LINEAR) -> str:
    """The claims and the scores they are made of, each with a number in brackets that names its runs below."""
    links = {record.run: link(record) for record in records}
    numbers: dict[tuple[RunLink, ...], int] = {}

    def behind(runs: Sequence[str]) -> str:
        these = tuple(links[run] for run in runs)
        return reference(numbers.setdefault(these, len(numbers) + 1)) if these else ""

    claims = [[*map(plain, cells_of(finding, metric, "; ")), behind(finding.runs)] for finding in found]
    scores = []
    for score in scores_of(records, metric):
        cells = (score.point, score.model, _with_half(f"{score.mean.mean:.1f}", score.mean), _by_seed(score.by_seed))
        scores.append([*map(plain, cells), behind(score.runs)])
    parts = ["# The paper's claims", legend(records, metric), _table(HEADINGS, claims)]
    parts += ["Scores, ± 95% over seeds:", _table(SCORES, scores)]
    parts += ["## Runs", "\n".join(run_item(number, runs) for runs, number in numbers.items())] if numbers else []
    return "\n\n".join(parts) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The last of a row's cells is the reference to its runs, and stands beside the text before it."""
    lines = [f"| {' | '.join(headings)} |", "|" + " --- |" * len(headings)]
    return "\n".join([*lines, *(f"| {' | '.join(cells[:-1])}{cells[-1]} |" for cells in rows)])


def _by_seed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def cells_of(finding: Finding, metric: str, between: str = "\n") -> tuple[str, ...]:
    """What stands below HEADINGS."""
    claim = finding.claim
    counts = {d.count for d in finding.differences if d is not None}
    return (
        str(claim.number),
        claim.text,
        between.join(comparison.words() for comparison in claim.comparisons),
        between.join(_difference(difference) for difference in finding.differences),
        " ".join(map(str, sorted(counts))),
        between.join(_paper(comparison.paper.difference(metric)) for comparison in claim.comparisons),
        finding.verdict,
    )


def _difference(difference: Interval | None) -> str:
    return "-" if difference is None else _with_half(f"{difference.mean:+.2f}", difference, 2)


def _paper(difference: float | None) -> str:
    return "-" if difference is None else f"{difference:+.2f}".removesuffix("0")


def _with_half(mean: str, of: Interval, digits: int = 1) -> str:
    return mean + (f" ± {of.half:.{digits}f}" if of.half is not None else "")
