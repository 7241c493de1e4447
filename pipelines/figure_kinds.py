"""The figures that figures.py draws: a run and one of its networks go in, a figure comes out, or a line why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bownet.words.health import Health
from pipelines.evaluators import Row
from pipelines.gallery import words_of
from pipelines.over_runs import alike, points
from pipelines.records import Record
from pipelines.stages.gallery import Gallery, features_map, figures_of
from pipelines.store import Artifact

METRIC = "linear/top1"


@dataclass(frozen=True)
class Of:
    """What a figure is of."""

    record: Record
    row: Row
    records: Sequence[Record]  # all runs of the store
    words: tuple[int, ...] = ()  # those that `words` shows


Draw = Callable[[Of], Any]


def of_gallery(kind: str) -> Draw:
    def draw(of: Of) -> Any:
        found = figures_of(gallery_of(of.row))
        if kind not in found:
            raise ValueError(f"kind={kind}: {of.row.name} has none; there are {', '.join(found)}")
        return found[kind]()

    return draw


def gallery_of(row: Row) -> Gallery:
    if "gallery" not in row.artifacts:
        raise ValueError(f"key={row.artifacts['backbone'].key}: {row.name} was not judged by features in this run")
    stage = row.artifacts["gallery"].stage
    assert isinstance(stage, Gallery)
    return stage


def draw_map(method: str) -> Draw:
    return lambda of: features_map(gallery_of(of.row), method)


def draw_visual_words(of: Of) -> Any:
    from pipelines.drawing.words import words_figure

    patches = whole(of.row, "patches")
    title = f"{of.row.name}: visual words"
    return words_figure(patches.read_npy("patches.npy"), patches.read_json("words.json"), title, of.words)


def draw_maps_of_words(of: Of) -> Any:
    from pipelines.stages.word_maps import word_maps_figure

    words = words_or_error(of.row, "word-maps")
    assert words.stage is not None
    images = words.stage.inputs()["images"]
    return word_maps_figure(images, words, f"{of.row.name}: visual words of training images")


def draw_predicted_words(of: Of) -> Any:
    from pipelines.stages.predictions import Predictions, predictions_figure

    whole(of.row, "patches")
    stage = of.row.artifacts["predictions"].stage
    assert isinstance(stage, Predictions)
    if (drawn := predictions_figure(stage)) is None:
        raise ValueError(f"key={stage.net.key}: without test images or the weights of Ω; train it again")
    return drawn


def draw_fewshot(of: Of) -> Any:
    from pipelines.drawing.lines import draw_lines

    lines: dict[str, list[tuple[float, float, float]]] = {}
    for one in of.record.rows:
        metrics = one["metrics"]
        shots = [name for name in metrics if name.startswith("fewshot/") and name.endswith("shot")]
        points = [(float(n[8:-4]), metrics[n], metrics.get(f"{n}_ci95", 0.0)) for n in shots]
        lines |= {one["name"]: points} if points else {}
    if not lines:
        raise ValueError(f"key={of.record.run}: this run has no few-shot scores; name another with --key")
    title = f"{of.record.settings['name']}: few-shot, {of.record.scale} scale"
    return draw_lines(lines, title, "images of a class", "%", log=True)


def draw_rounds(of: Of) -> Any:
    """Over all seeds that there are."""
    from pipelines.drawing.lines import draw_lines

    rounds = [one["name"] for one in of.record.rows if one["name"].startswith("BoWNet") and METRIC in one["metrics"]]
    if len(rounds) < 2:
        raise ValueError(f"key={of.record.run}: rounds are drawn of a run that has judged two or more; use --rounds 2")
    runs = alike(of.record, of.records)
    made = []
    for number, name in enumerate(rounds, 1):
        made += points(runs, partial(_always, float(number)), partial(_linear, name))
    title = f"{of.record.settings['name']}: linear accuracy by round, {of.record.scale} scale"
    return draw_lines({"": made}, title, "round", "linear top-1, %")


def _always(number: float, record: Record) -> float:
    return number


def _linear(name: str, record: Record) -> float:
    return record.metrics(name)[METRIC]


def draw_vocabulary_size(of: Of) -> Any:
    """Of the last networks of all runs that differ from this one in K and seed only."""
    from pipelines.drawing.lines import draw_lines

    if "vocabulary" not in of.record.settings:
        raise ValueError(f"key={of.record.run}: judged networks that others made, of no vocabulary; name another run")
    runs = [
        one for one in alike(of.record, of.records, "vocabulary.size") if one.rows and METRIC in one.rows[-1]["metrics"]
    ]
    made = points(runs, lambda one: one.settings["vocabulary"]["size"], lambda one: one.rows[-1]["metrics"][METRIC])
    if len(made) < 2:
        raise ValueError(
            f"key={of.record.run}: no other run differs from it in vocabulary.size only; run sweep.py vocabulary-size"
        )
    title = f"{of.record.settings['name']}: linear accuracy by vocabulary size, {of.record.scale} scale"
    return draw_lines({"": made}, title, "words", "linear top-1, %", log=True)


def draw_health_of_words(of: Of) -> Any:
    from pipelines.drawing.health import draw_health

    return draw_health(Health(**words_or_error(of.row, "health").read_json("health.json")), of.row.name)


def draw_found_objects(of: Of) -> Any:
    from pipelines.stages.detection import detections_figure

    if "detection" not in of.row.artifacts:
        raise ValueError(
            f"kind=detections: {of.row.name} was not judged by detection in this run; name another with --key"
        )
    return detections_figure(of.row.artifacts["detection"])


KINDS: dict[str, Draw] = {
    "words": draw_visual_words,
    "word-maps": draw_maps_of_words,
    "health": draw_health_of_words,
    "predictions": draw_predicted_words,
    "tsne": draw_map("tsne"),
    "umap": draw_map("umap"),
    "neighbours": of_gallery("neighbours"),
    "confusion": of_gallery("confusion"),
    "training": of_gallery("training"),
    "detections": draw_found_objects,
    "fewshot": draw_fewshot,
    "rounds": draw_rounds,
    "vocabulary-size": draw_vocabulary_size,
}


def words_or_error(row: Row, kind: str) -> Artifact:
    words = words_of(row)
    if words is None:
        raise ValueError(f"kind={kind}: {row.name} predicts no words; name a student")
    return words


def whole(row: Row, name: str) -> Artifact:
    if name not in row.artifacts:
        raise ValueError(f"kind=words: {row.name} predicts no words; name a student")
    if not row.artifacts[name].exists():
        raise ValueError(f"key={row.artifacts[name].key}: not in the store; run the experiment again, with figures")
    return row.artifacts[name]
