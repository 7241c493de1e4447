"""Figures over all networks of a run: its record goes in; few-shot curves and scores over rounds and over K come out.

figures/<run>/<kind>.png in the store. Scores over rounds and over K are means over all runs of the store that differ in
their seed only, or in K, so that a later run may have more to show.
"""

from __future__ import annotations

from functools import partial

from pipelines.evaluators import Row
from pipelines.figure_kinds import KINDS, Of
from pipelines.records import Record, origin, read_records
from pipelines.store import Folder, StoreError

OVER_NETWORKS = ("fewshot", "rounds", "vocabulary-size")


def folder_of(run: str, root: str) -> Folder:
    return Folder(root, f"figures/{run}")


def write_figures(record: Record, row: Row, root: str) -> list[str]:
    """Those that the run has scores for; where they are."""
    from pipelines.drawing.save import save_png
    from pipelines.drawing.style import sign

    folder, records, written = folder_of(record.run, root), [*_earlier(root), record], []
    for kind in OVER_NETWORKS:
        try:
            figure = KINDS[kind](Of(record, row, records))
        except ValueError:  # says what the run would need, such as a second round
            continue
        sign(figure, origin(record))
        folder.write_via(f"{kind}.png", partial(save_png, figure))
        written.append(folder.path(f"{kind}.png"))
    return written


def _earlier(root: str) -> list[Record]:
    """None where one cannot be read: no figure is worth a run that fails at its end."""
    try:
        return read_records(root)
    except StoreError:
        return []
