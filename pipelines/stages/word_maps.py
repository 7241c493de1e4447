"""Some training images with their visual words laid over them: images and words go in, a figure comes out."""

from __future__ import annotations

from typing import Any

import numpy as np

from bownet.nets.receptive_field import receptive_field
from pipelines.stages.pictures import clean_view, data_of, names_of, row_reader, shard_labels, shards_of
from pipelines.stages.shards import Row, teacher_of
from pipelines.store import Artifact

IMAGES = 6


def word_maps_figure(images: Artifact, words: Artifact, title: str) -> Any:
    from pipelines.drawing.word_maps import draw_word_maps

    chosen, data = some_images(images, IMAGES), data_of(images)
    rows = np.array([row["start"] + i for row, i in chosen])
    pixels = row_reader(images, "train")(rows, lambda content, _: clean_view(content, data))
    assert words.stage is not None
    made_from = words.stage.inputs()
    field = receptive_field(teacher_of(made_from["teacher"]), made_from["vocabulary"].info["tap"])
    maps = np.stack([np.asarray(words.read_npy(f"{row['name']}.words.npy")[i, 0]) for row, i in chosen])
    return draw_word_maps(pixels, maps, field, [names_of(images, row)[i] for row, i in chosen], title)


def some_images(images: Artifact, count: int) -> list[tuple[Row, int]]:
    """Training images, each as its shard and its place there: spread over shards, of as many classes as possible."""
    shards = shards_of(images, "train")
    chosen: list[tuple[Row, int]] = []
    classes: set[int] = set()
    for k in range(count):
        row = shards[k * len(shards) // count]
        free = [i for i in range(row["stop"] - row["start"]) if (row, i) not in chosen]
        if not free:
            continue
        labels = shard_labels(images, row)
        of_new_class = free if labels is None else [i for i in free if int(labels[i]) not in classes]
        i = (of_new_class or free)[0]
        chosen.append((row, i))
        classes |= set() if labels is None else {int(labels[i])}
    return chosen
