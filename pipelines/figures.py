"""One figure of a finished run, as PNG or SVG: a kind and a key go in, a file comes out.

python pipelines/figures.py tsne --key 3f2a --out tsne.svg       a network, its features or its figures, by their key
python pipelines/figures.py fewshot --out fewshot.png            all networks of the last run, or of --key RUN
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bownet.config import Evaluation, Experiment, Settings
from pipelines.command_line import nearest_name, parse_settings
from pipelines.evaluate import evaluation
from pipelines.evaluators import Row
from pipelines.full import experiment
from pipelines.gallery import with_figures, words_of
from pipelines.plan import Plan
from pipelines.program import guarded
from pipelines.records import Record, read_records
from pipelines.stages.gallery import Gallery, features_map, figures_of
from pipelines.store import Artifact, Store

FORMATS = ("png", "svg", "pdf")


class FigureOptions(Settings):
    """What is drawn, and where to."""

    key: str = ""
    """The beginning of a key of the network, or of a run's id; the last run, and its last network, if not given."""
    store: str = "store"
    """Folder or URI where results are kept."""
    out: str = ""
    """The file; its ending says whether it is PNG, SVG or PDF. KIND.png if not given."""
    debug: bool = False
    """Show a traceback with an error."""


def of_gallery(kind: str) -> Callable[[Record, Row], Any]:
    def draw(record: Record, row: Row) -> Any:
        found = figures_of(gallery_of(row))
        if kind not in found:
            raise ValueError(f"kind={kind}: {row.name} has none; there are {', '.join(found)}")
        return found[kind]()

    return draw


def gallery_of(row: Row) -> Gallery:
    if "gallery" not in row.artifacts:
        raise ValueError(f"key={row.artifacts['backbone'].key}: {row.name} was not judged by features in this run")
    stage = row.artifacts["gallery"].stage
    assert isinstance(stage, Gallery)
    return stage


def draw_map(method: str) -> Callable[[Record, Row], Any]:
    return lambda record, row: features_map(gallery_of(row), method)


def draw_visual_words(record: Record, row: Row) -> Any:
    from pipelines.drawing.words import words_figure

    patches = whole(row, "patches")
    title = f"{row.name}: visual words, {record.scale} scale"
    return words_figure(patches.read_npy("patches.npy"), patches.read_json("words.json"), title)


def draw_maps_of_words(record: Record, row: Row) -> Any:
    import numpy as np

    from pipelines.drawing.word_maps import draw_word_maps
    from pipelines.stages.pictures import names_of, pixels_of, shards_of

    words = words_of(row)
    if words is None or words.stage is None:
        raise ValueError(f"kind=word-maps: {row.name} predicts no words; name a student")
    images = words.stage.inputs()["images"]
    shard = shards_of(images, "train")[0]
    maps = np.asarray(words.read_npy(f"{shard['name']}.words.npy"))[:6, 0]
    title = f"{row.name}: visual words of training images"
    return draw_word_maps(pixels_of(images, shard)[:6], maps, names_of(images, shard)[:6], title)


def draw_predicted_words(record: Record, row: Row) -> Any:
    from pipelines.stages.predictions import Predictions, predictions_figure

    whole(row, "patches")
    stage = row.artifacts["predictions"].stage
    assert isinstance(stage, Predictions)
    if (drawn := predictions_figure(stage)) is None:
        raise ValueError(f"key={stage.net.key}: without test images or the weights of Ω; train it again")
    return drawn


def draw_fewshot(record: Record, row: Row) -> Any:
    from pipelines.drawing.lines import draw_lines

    lines: dict[str, list[tuple[float, float, float]]] = {}
    for one in record.rows:
        metrics = one["metrics"]
        shots = [name for name in metrics if name.startswith("fewshot/") and name.endswith("shot")]
        points = [(float(n[8:-4]), metrics[n], metrics.get(f"{n}_ci95", 0.0)) for n in shots]
        lines |= {one["name"]: points} if points else {}
    if not lines:
        raise ValueError(f"key={record.run}: this run has no few-shot scores; name another with --key")
    title = f"{record.settings['name']}: few-shot, {record.scale} scale"
    return draw_lines(lines, title, "images of a class", "%", log=True)


def draw_rounds(record: Record, row: Row) -> Any:
    from pipelines.drawing.lines import draw_lines

    students = [one["metrics"] for one in record.rows if one["name"].startswith("BoWNet")]
    points = [(float(i), m["linear/top1"], 0.0) for i, m in enumerate(students, 1) if "linear/top1" in m]
    if len(points) < 2:
        raise ValueError(f"key={record.run}: rounds are drawn of a run that has judged two or more; use --rounds 2")
    title = f"{record.settings['name']}: linear accuracy by round, {record.scale} scale"
    return draw_lines({"": points}, title, "round", "linear top-1, %")


KINDS: dict[str, Callable[[Record, Row], Any]] = {
    "words": draw_visual_words,
    "word-maps": draw_maps_of_words,
    "predictions": draw_predicted_words,
    "tsne": draw_map("tsne"),
    "umap": draw_map("umap"),
    "neighbours": of_gallery("neighbours"),
    "confusion": of_gallery("confusion"),
    "training": of_gallery("training"),
    "fewshot": draw_fewshot,
    "rounds": draw_rounds,
}


def whole(row: Row, name: str) -> Artifact:
    if name not in row.artifacts:
        raise ValueError(f"kind=words: {row.name} predicts no words; name a student")
    if not row.artifacts[name].exists():
        raise ValueError(f"key={row.artifacts[name].key}: not in the store; run the experiment again, with figures")
    return row.artifacts[name]


def chosen(records: Sequence[Record], key: str, store: Store) -> tuple[Record, Row]:
    """The last run whose id, or one of whose networks, begins with the key; and that network."""
    for record in reversed(records):
        for row in reversed(record.rows):
            refs = [ref.rpartition("/")[2] for ref in row.get("artifacts", {}).values()]
            if record.run.startswith(key) or any(ref.startswith(key) for ref in refs):
                rows = rows_of(record, store)
                return record, next(one for one in rows if one.name == row["name"])
    raise ValueError(f"key={key!r}: no finished run of this store has it; python -m pipelines.store ls lists keys")


def rows_of(record: Record, store: Store) -> list[Row]:
    """The rows of a run with all their stages: the experiment is walked once more, and nothing is built."""
    plan = Plan(store)
    if "teacher" in record.settings:
        return with_figures(experiment(Experiment.model_validate(record.settings), plan), plan)
    return with_figures(evaluation(Evaluation.model_validate(record.settings), plan), plan)


def figure(arguments: Sequence[str], console: Console) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        console.print(__doc__, f"kinds: {', '.join(KINDS)}", markup=False)
        parse_settings(FigureOptions, __doc__, ["--help"])
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

    save(KINDS[kind](record, row), out, out.suffix[1:])
    console.print(f"{out}: {kind} of {row.name}, run {record.run}", soft_wrap=True, markup=False)


def main() -> int:
    return guarded(lambda console: figure(sys.argv[1:], console))


if __name__ == "__main__":
    sys.exit(main())
