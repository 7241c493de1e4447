"""Figures of every network of a run: rows of the results go in, the same rows with their figures come out.

No figure decides a result: they are stages of their own, after all others, and `--no-figures` leaves them out.
"""

from __future__ import annotations

from dataclasses import replace

from pipelines.evaluators import Getter, Row
from pipelines.stages.gallery import Gallery
from pipelines.stages.patches import WordPatches
from pipelines.stages.predictions import Predictions
from pipelines.stages.student import TrainStudent
from pipelines.store import Artifact


def with_figures(rows: list[Row], store: Getter) -> list[Row]:
    """Visual words of each student's teacher and which it predicts; a gallery of each network that has features."""
    return [replace(row, artifacts=row.artifacts | _figures(row, rows, store)) for row in rows]


def _figures(row: Row, rows: list[Row], store: Getter) -> dict[str, Artifact]:
    made: dict[str, Artifact] = {}
    words = words_of(row)
    inputs = words.stage.inputs() if words is not None and words.stage is not None else {}
    if words is not None:
        patches = WordPatches(inputs["images"], inputs["teacher"], inputs["vocabulary"], words, model=row.name)
        made["patches"] = store.get(patches)
        made["predictions"] = store.get(
            Predictions(
                inputs["images"],
                row.artifacts["backbone"],
                inputs["teacher"],
                inputs["vocabulary"],
                made["patches"],
                model=row.name,
            )
        )
    features = row.artifacts.get("features")
    if features is not None and features.stage is not None:
        taught_by = next((r for r in rows if r.artifacts["backbone"] == inputs.get("teacher")), None)
        before = None if taught_by is None else taught_by.artifacts.get("features")
        gallery = Gallery(
            features.stage.inputs()["images"],
            row.artifacts["backbone"],
            features,
            row.artifacts.get("linear") if _has_confusion(row) else None,
            before,
            taught_by.name if taught_by else "teacher",
            model=row.name,
        )
        made["gallery"] = store.get(gallery)
    return made


def words_of(row: Row) -> Artifact | None:
    """What the network was trained to predict, if it is a student."""
    student = row.artifacts["backbone"].stage
    return student.words if isinstance(student, TrainStudent) else None


def _has_confusion(row: Row) -> bool:
    """A linear classifier on the features of this row; one that saw augmented images has its own."""
    linear = row.artifacts.get("linear")
    return linear is not None and linear.stage is not None and "features" in linear.stage.inputs()
