"""Figures of every network of a run: rows of the results go in, the same rows with their figures come out.

No figure decides a result: they are stages of their own, after all others, and `--no-figures` leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pipelines.evaluators import Getter, Row
from pipelines.stages.features import Features
from pipelines.stages.gallery import Gallery
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.patches import WordPatches
from pipelines.stages.pictures import count_of
from pipelines.stages.predictions import Predictions
from pipelines.stages.student import TrainStudent
from pipelines.stages.teacher import TrainTeacher
from pipelines.store import Artifact

MOST_TEST = 50_000  # test images whose features are made for figures alone, as many as ImageNet has
ON_THESE_IMAGES = ("features", "linear", "finetune", "backbone")  # of a row: what may tell its images
OF = " of "  # within the role of a gallery of a network that no row is of

Failed = Callable[[ModelStage, Exception], None]  # raises what a run cannot do without


def with_figures(rows: list[Row], store: Getter, failed: Failed | None = None) -> list[Row]:
    """Visual words of each student's teacher and which it predicts; a gallery of each network; all training.

    Figures that cannot be drawn are told to `failed` and left out, as scores that took hours must not be lost for them.
    """
    rows = [replace(row, artifacts=row.artifacts | _features(row, store)) for row in rows]
    return [replace(row, artifacts=row.artifacts | _figures(row, rows, store, failed)) for row in rows]


def _features(row: Row, store: Getter) -> dict[str, Artifact]:
    """Of test images, where no evaluator wanted any: one pass over few images beside all epochs of a training."""
    images = images_of(row)
    if "features" in row.artifacts or row.arch is None or images is None:
        return {}
    if not 2 < count_of(images, "test") <= MOST_TEST:
        return {}
    net = row.artifacts["backbone"]
    return {"features": store.get(Features(images, net, row.arch, splits=("test",), model=row.name))}


def _figures(row: Row, rows: list[Row], store: Getter, failed: Failed | None) -> dict[str, Artifact]:
    made: dict[str, Artifact] = {}

    def draw(role: str, stage: ModelStage) -> None:
        try:
            made[role] = store.get(stage)
        except Exception as error:
            if failed is None:
                raise
            failed(stage, error)

    words = words_of(row)
    inputs = words.stage.inputs() if words is not None and words.stage is not None else {}
    if words is not None:
        images, teacher, vocabulary = (inputs[name] for name in ("images", "teacher", "vocabulary"))
        draw("patches", WordPatches(images, teacher, vocabulary, words, model=row.name))
        if "patches" in made:
            net = row.artifacts["backbone"]
            draw("predictions", Predictions(images, net, teacher, vocabulary, made["patches"], model=row.name))
    judged_on, features, linear = images_of(row), row.artifacts.get("features"), row.artifacts.get("linear")
    if judged_on is not None and (
        features is not None or linear is not None or _was_trained(row.artifacts["backbone"])
    ):
        taught_by = next((r for r in rows if r.artifacts["backbone"] == inputs.get("teacher")), None)
        before = None if taught_by is None or features is None else taught_by.artifacts.get("features")
        gallery = Gallery(
            judged_on,
            row.artifacts["backbone"],
            features,
            linear,
            before,
            taught_by.name if taught_by else "teacher",
            model=row.name,
        )
        draw("gallery", gallery)
    for net in _not_judged(row, rows):
        assert isinstance(net.stage, ModelStage)
        of_net = Gallery(net.stage.inputs()["images"], net, model=net.stage.model)
        draw(f"gallery{OF}{net.stage.model}", of_net)
    return made


def words_of(row: Row) -> Artifact | None:
    """What the network was trained to predict, if it is a student."""
    student = row.artifacts["backbone"].stage
    return student.words if isinstance(student, TrainStudent) else None


def images_of(row: Row) -> Artifact | None:
    """Those that it was judged on, or else trained on; None where evaluators had images of their own only."""
    for role in ON_THESE_IMAGES:
        stage = row.artifacts[role].stage if role in row.artifacts else None
        if stage is not None and "images" in stage.inputs():
            return stage.inputs()["images"]
    return None


def _was_trained(net: Artifact) -> bool:
    return isinstance(net.stage, TrainTeacher | TrainStudent)


def _not_judged(row: Row, rows: list[Row]) -> Iterator[Artifact]:
    """Networks that were trained on the way to this one and are in no row themselves, the nearest first."""
    judged = [one.artifacts["backbone"] for one in rows]
    net = _taught_by(row.artifacts["backbone"])
    while net is not None and net not in judged and _was_trained(net):
        yield net
        net = _taught_by(net)


def _taught_by(net: Artifact) -> Artifact | None:
    """The teacher whose words a student predicts; the network that a clustering one starts from."""
    stage = net.stage
    if isinstance(stage, TrainStudent):
        return stage.words.stage.inputs()["teacher"] if stage.words.stage is not None else None
    return stage.inputs().get("start") if isinstance(stage, TrainTeacher) else None
