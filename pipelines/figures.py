"""One figure of a finished run, as PNG or SVG: a kind and a key go in, a file comes out.

python pipelines/figures.py tsne --key 3f2a --out tsne.svg       a network, its features or its figures, by their key
python pipelines/figures.py fewshot --out fewshot.png            all networks of the last run, or of --key RUN
python pipelines/figures.py words --words 3 7 12                 some visual words
python pipelines/figures.py vocabulary-size                      accuracy over K, of all runs that differ in it
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bownet.config import Evaluation, Experiment, Settings
from pipelines.command_line import nearest_name, parse_settings
from pipelines.evaluate import evaluation
from pipelines.evaluators import Row
from pipelines.figure_kinds import KINDS, Of
from pipelines.full import experiment
from pipelines.gallery import OF, with_figures
from pipelines.plan import Plan
from pipelines.program import guarded
from pipelines.records import Record, origin, read_records
from pipelines.stages.gallery import Gallery
from pipelines.store import Store

FORMATS = ("png", "svg", "pdf")


class FigureOptions(Settings):
    """What is drawn, and where to."""

    key: str = ""
    """The beginning of a key of the network, or of a run's id; the last run, and its last network, if not given."""
    store: str = "store"
    """Folder or URI where results are kept."""
    out: str = ""
    """The file; its ending says whether it is PNG, SVG or PDF. KIND.png if not given."""
    words: tuple[int, ...] = ()
    """Which visual words `words` shows; frequent ones, rare ones and others if not given."""
    metric: str = ""
    """What `rounds` and `vocabulary-size` show, such as fewshot/5shot; the first evaluator's score if not given."""
    debug: bool = False
    """Show a traceback with an error."""


def chosen(records: Sequence[Record], key: str, store: Store) -> tuple[Record, Row]:
    """The last run whose id, or one of whose networks, begins with the key; and that network."""
    for record in reversed(records):
        for row in reversed(record.rows):
            refs = [ref.rpartition("/")[2] for ref in row.get("artifacts", {}).values()]
            if record.run.startswith(key) or any(ref.startswith(key) for ref in refs):
                rows = rows_of(record, store)
                return record, meant(next(one for one in rows if one.name == row["name"]), key)
    raise ValueError(f"key={key!r}: no finished run of this store has it; python -m pipelines.store ls lists keys")


def meant(row: Row, key: str) -> Row:
    """The row, or a network on the way to it that was not judged and has curves of its training."""
    for role, artifact in row.artifacts.items():
        if OF in role and key and artifact.key.startswith(key) and isinstance(artifact.stage, Gallery):
            return Row(role.partition(OF)[2], {"backbone": artifact.stage.net, "gallery": artifact})
    return row


def rows_of(record: Record, store: Store) -> list[Row]:
    """The rows of a run with all their stages: the experiment is walked once more, and nothing is built."""
    plan = Plan(store)
    if "teacher" in record.settings:
        return with_figures(experiment(Experiment.model_validate(record.settings), plan), plan)
    return with_figures(evaluation(Evaluation.model_validate(record.settings), plan), plan)


def figure(arguments: Sequence[str], console: Console) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        parse_settings(FigureOptions, f"{__doc__}\nkinds: {', '.join(KINDS)}", ["--help"])
    kind, *rest = arguments
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: unknown{nearest_name(kind, KINDS)}; there are {', '.join(KINDS)}")
    options = parse_settings(FigureOptions, __doc__, rest)
    out = Path(options.out or f"{kind}.png")
    if out.suffix[1:] not in FORMATS:
        raise ValueError(f"out={out}: must end with one of {', '.join(FORMATS)}")
    if not out.resolve().parent.is_dir():
        raise ValueError(f"out={out}: name a file in a folder that exists")
    store = Store(options.store)
    records = read_records(store.root)
    if not records:
        raise ValueError(f"store={options.store}: holds no finished run; make one, or name another store")
    record, row = chosen(records, options.key, store)

    from pipelines.drawing.save import save
    from pipelines.drawing.style import sign

    drawn = KINDS[kind](Of(record, row, records, options.words, options.metric))
    sign(drawn, origin(record))
    save(drawn, out, out.suffix[1:])
    console.print(f"{out}: {kind} of {row.name}, run {record.run}", soft_wrap=True, markup=False)


def main() -> int:
    return guarded(lambda console: figure(sys.argv[1:], console))


if __name__ == "__main__":
    sys.exit(main())
