"""The figures that figures.py draws: a run and one of its networks go in, a figure comes out, or a line why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bownet.config import Experiment
from bownet.words.health import Health
from pipelines.evaluators import Row
from pipelines.gallery import words_of
from pipelines.over_runs import Point, alike, bars_of, points
from pipelines.records import Record
from pipelines.results import heading
from pipelines.stages.gallery import Gallery, features_map, figures_of, is_labelled
from pipelines.store import Artifact
from pipelines.sweeps.metric import usual_metric


@dataclass(frozen=True)
class Of:
    """What a figure is of."""

    record: Record
    row: Row
    records: Sequence[Record]  # all runs of the store
    words: tuple[int, ...] = ()  # those that `words` shows
    metric: str = ""  # what rounds and sizes are compared by; the first evaluator's if not named


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
        raise ValueError(
            f"key={row.artifacts['backbone'].key}: {row.name} has no figures of its own; name another --key"
        )
    stage = row.artifacts["gallery"].stage
    assert isinstance(stage, Gallery)
    return replace(stage, features=_if_there(stage.features), before=_if_there(stage.before))


def _if_there(features: Artifact | None) -> Artifact | None:
    """A trial of a sweep has no features that only figures would need."""
    return features if features is not None and features.exists() else None


def draw_map(method: str) -> Draw:
    def draw(of: Of) -> Any:
        gallery = gallery_of(of.row)
        if gallery.features is None:
            raise ValueError(f"kind={method}: there are no features of {of.row.name}; judge it by knn or another")
        return features_map(gallery, method, is_labelled(gallery))

    return draw


def draw_visual_words(of: Of) -> Any:
    from pipelines.drawing.words import words_figure

    patches = whole(of.row, "patches", "words")
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

    whole(of.row, "patches", "predictions")
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
        points = [(float(n[8:-4]), metrics[n], metrics.get(f"{n}_ci95", math.nan)) for n in shots]
        lines |= {one["name"]: points} if points else {}
    if not lines:
        raise ValueError(f"key={of.record.run}: this run has no few-shot scores; name another with --key")
    title = f"{of.record.settings['name']}: few-shot, {of.record.scale} scale"
    return draw_lines(lines, title, "images of a class\nbars: 95% intervals over episodes", "%", log=True)


def draw_rounds(of: Of) -> Any:
    """Over all seeds that there are. Round 0 is the base teacher, where it was judged."""
    if "rounds" not in of.record.settings:
        raise ValueError(f"key={of.record.run}: judged networks that others made, in no rounds; name another run")
    names = [one["name"] for one in of.record.rows]
    rounds = [name for name in names if name.startswith("BoWNet")]
    if len(rounds) < 2:
        raise ValueError(f"key={of.record.run}: rounds are drawn of a run that has judged two or more; use --rounds 2")
    metric = metric_of_run(of)
    teacher = names[: names.index(rounds[0])][-1:]
    shown = [
        (number, name) for number, name in enumerate([*teacher, *rounds], 1 - len(teacher)) if has(of, name, metric)
    ]
    runs = alike(of.record, of.records)
    made = []
    for number, name in shown:
        judged = [one for one in runs if metric in one.metrics(name)]
        made += points(judged, partial(_always, float(number)), partial(_score, name, metric))
    return _draw_over(of, made, metric, "round", log=False)


def has(of: Of, name: str, metric: str) -> bool:
    return metric in of.record.metrics(name)


def _always(number: float, record: Record) -> float:
    return number


def _score(name: str, metric: str, record: Record) -> float:
    return record.metrics(name)[metric]


def metric_of_run(of: Of) -> str:
    """The one that is named, or what sweeps of this experiment are compared by; one that no row has is refused."""
    known = dict.fromkeys(name for row in of.record.rows for name in row["metrics"])
    metric = of.metric or usual_metric(Experiment.model_validate(of.record.settings))
    if metric not in known:
        there = ", ".join(name for name in known if not name.endswith(("_ci95", "_std"))) or "none"
        raise ValueError(f"metric={metric}: run {of.record.run} has no such score; name another --metric: {there}")
    return metric


def draw_vocabulary_size(of: Of) -> Any:
    """Of the last networks of all runs that differ from this one in K and seed only."""
    if "vocabulary" not in of.record.settings:
        raise ValueError(f"key={of.record.run}: judged networks that others made, of no vocabulary; name another run")
    metric = metric_of_run(of)
    runs = [
        one for one in alike(of.record, of.records, "vocabulary.size") if one.rows and metric in one.rows[-1]["metrics"]
    ]
    made = points(runs, lambda one: one.settings["vocabulary"]["size"], lambda one: one.rows[-1]["metrics"][metric])
    if len(made) < 2:
        raise ValueError(
            f"key={of.record.run}: no other run differs from it in vocabulary.size only; run sweep.py vocabulary-size"
        )
    return _draw_over(of, made, metric, "words", log=True)


def _draw_over(of: Of, made: Sequence[Point], metric: str, x: str, log: bool) -> Any:
    from pipelines.drawing.lines import draw_lines

    title = (
        f"{of.record.settings['name']}: {heading(metric)} by {'vocabulary size' if log else x}, {of.record.scale} scale"
    )
    bars = bars_of([half for _, _, half in made])
    return draw_lines({"": made}, title, f"{x}\n{bars}", f"{heading(metric)}, %", log=log)


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


def whole(row: Row, name: str, kind: str) -> Artifact:
    if name not in row.artifacts:
        raise ValueError(f"kind={kind}: {row.name} predicts no words; name a student")
    if not row.artifacts[name].exists():
        raise ValueError(f"key={row.artifacts[name].key}: not in the store; run the experiment again, with figures")
    return row.artifacts[name]
