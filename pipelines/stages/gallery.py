"""gallery: a network to look at: a map of its features, what it finds alike, what it confuses, how it was trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from pipelines.stages.features import read_features
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import clean_view, count_of, data_of, labels_of, row_reader
from pipelines.stages.scoring import label_obstacle, on_worker
from pipelines.stages.signed import signed
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace

METHODS = {"tsne": "t-SNE", "umap": "UMAP"}
QUERIES, FOUND = 8, 5  # of the picture of neighbours


@dataclass(frozen=True)
class Gallery(ModelStage):
    """Figures of one network, those that its inputs allow: without features only its training and its confusions.

    `before` are the features of the one that taught it, shown beside its own.
    """

    images: Artifact
    net: Artifact
    features: Artifact | None = None
    linear: Artifact | None = None
    before: Artifact | None = None
    before_name: str = field(default="teacher", metadata=NOT_IN_KEY)
    seed: int = 0

    name = "gallery"
    title = "figures"
    version = 2

    def estimate(self) -> Estimate:
        from pipelines.drawing.scatter import MOST

        count = min(MOST, count_of(self.images, "test"))
        return Estimate(f"a map of {count} test images" if self.features else "curves", disk_bytes=2 << 20)

    def build(self, work: Workspace) -> dict[str, Any]:
        return {"figures": on_worker(work, _draw_all, self, work)}


def _draw_all(gallery: Gallery, work: Workspace) -> list[str]:
    from pipelines.drawing.save import save_png

    names = []
    for name, draw in figures_of(gallery).items():
        work.write_via(f"{name}.png", partial(save_png, signed(draw(), gallery.images)))
        names.append(f"{name}.png")
    return names


def is_labelled(gallery: Gallery) -> bool:
    return count_of(gallery.images, "test") > 2 and label_obstacle(gallery.images, "test") is None


def figures_of(gallery: Gallery) -> dict[str, Callable[[], Any]]:
    """What draws each figure, by name; those that the images do not allow are left out."""
    drawn: dict[str, Callable[[], Any]] = {}
    count = count_of(gallery.images, "test") if gallery.features is not None else 0
    labelled = is_labelled(gallery)
    if count > 2:
        drawn["tsne"] = partial(features_map, gallery, "tsne", labelled)
    if count > FOUND:
        drawn["neighbours"] = partial(neighbours, gallery, labelled)
    if gallery.linear is not None:
        drawn["confusion"] = partial(confusion, gallery, gallery.linear)
    if gallery.net.folder.exists("history.json"):
        drawn["training"] = partial(training, gallery)
    return drawn


def confusion(gallery: Gallery, linear: Artifact) -> Any:
    from pipelines.drawing.confusion import draw_confusion

    details = linear.read_json("details.json")
    tap = next(name for name in details if isinstance(details[name], dict) and "confusion" in details[name])
    return draw_confusion(details[tap]["confusion"], details["classes"], f"{gallery.model}: linear classifier on {tap}")


def training(gallery: Gallery) -> Any:
    from pipelines.drawing.curves import draw_curves

    return draw_curves(gallery.net.read_json("history.json"), f"{gallery.model}: training")


def features_map(gallery: Gallery, method: str, labelled: bool) -> Any:
    """Test images by t-SNE or UMAP, by class where they have any."""
    from pipelines.drawing.scatter import MOST, draw_scatter, embed

    names = [str(name) for name in gallery.images.info["categories"]] if labelled else ["test images"]
    labels = labels_of(gallery.images, "test") if labelled else np.zeros(count_of(gallery.images, "test"), np.int64)
    rows = np.sort(np.random.default_rng(gallery.seed).permutation(len(labels))[:MOST])
    points = embed(_features(gallery.features)[rows], method, gallery.seed)
    title = f"{gallery.model}: {METHODS[method]} of {len(rows)} test images"
    return draw_scatter(points, labels[rows], names, title)


def neighbours(gallery: Gallery, labelled: bool) -> Any:
    """Some test images, of as many classes as possible, with those whose features are nearest."""
    from pipelines.drawing.neighbours import draw_neighbours, nearest

    data, count = data_of(gallery.images), count_of(gallery.images, "test")
    labels = labels_of(gallery.images, "test") if labelled else None
    queries = _some_of_each(labels, count, gallery.seed)
    found = {} if gallery.before is None else {gallery.before_name: nearest(_features(gallery.before), queries, FOUND)}
    found[gallery.model] = nearest(_features(gallery.features), queries, FOUND)
    rows = np.unique(np.concatenate([queries, *(numbers.ravel() for numbers in found.values())]))
    pixels = row_reader(gallery.images, "test")(rows, lambda content, _: clean_view(content, data))
    at = {int(row): i for i, row in enumerate(rows)}
    here = {name: np.vectorize(at.__getitem__)(numbers) for name, numbers in found.items()}
    of_rows = None if labels is None else labels[rows]
    title = f"nearest of {count} test images, by cosine"
    return draw_neighbours(pixels, of_rows, [at[q] for q in queries], here, title)


def _some_of_each(labels: Any, count: int, seed: int) -> list[int]:
    order = np.random.default_rng(seed).permutation(count)
    if labels is not None:  # one of each class first
        _, first = np.unique(labels[order], return_index=True)
        order = np.concatenate([order[np.sort(first)], order])
    return [int(i) for i in dict.fromkeys(order.tolist())][: min(QUERIES, count)]


def _features(features: Artifact | None) -> Any:
    assert features is not None
    return read_features(features, "test", features.info["pooled"]).numpy().copy()
