"""Images with boxes, from an images artifact of VOC: annotations, pixels with objects, and whether they can be used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.images.decode import BadImage, decode, image_size, quietly
from bownet.images.scenes_voc import drawn_vocdevkit
from evaluation.detection.objects import Objects, objects_of
from evaluation.detection.views import Pixels
from pipelines.stages.images import opened, refuse_if_too_many
from pipelines.stages.pictures import annotations_of, checked, count_of, data_of, names_of, row_reader, shards_of
from pipelines.store import Artifact
from pipelines.store.artifacts import cache_folder

Annotation = dict[str, Any]


def voc_path(setting: str, path: str | None, data: Data) -> str:
    """Where an evaluator of its own `path`, in the settings named so, finds VOC: there, or where the images are VOC."""
    if path == "scenes":
        return str(drawn_vocdevkit(cache_folder()))
    found = path or (data.path if data.kind == "voc" else None)
    if found is None:
        raise ValueError(
            f"{setting}.path=None: data.kind={data.kind} is not VOC; name the folder of VOCdevkit, or scenes"
        )
    return found


@dataclass(frozen=True)
class AnnotatedPictures:
    """Some images of a split, by their numbers in it."""

    images: Artifact
    split: str
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, i: int) -> tuple[Pixels, Objects]:
        row = int(self.rows[i])
        pixels = pixels_of_row(self.images, self.split, row)
        names, annotations = names_and_annotations(self.images, self.split)
        size = pixels.shape[0], pixels.shape[1]
        return pixels, objects_of(annotations[row], size, categories_of(self.images), names[row])


def training_pictures(images: Artifact) -> AnnotatedPictures:
    """All training images with an object at least: others are left out, as in detectron2."""
    _, annotations = names_and_annotations(images, "train")
    return AnnotatedPictures(images, "train", np.flatnonzero([bool(a["boxes"]) for a in annotations]))


def pixels_of_row(images: Artifact, split: str, row: int) -> Pixels:
    return row_reader(images, split)(np.array([row]), lambda content, _: checked(decode(content)))[0]


@lru_cache(maxsize=4)
def names_and_annotations(images: Artifact, split: str) -> tuple[list[str], list[Annotation]]:
    """Of all images of a split; kept by the process."""
    names = [name for row in shards_of(images, split) for name in names_of(images, row)]
    return names, annotations_of(images, split)


def categories_of(images: Artifact) -> tuple[str, ...]:
    if images.exists():
        return tuple(images.info["categories"])
    return opened(data_of(images)).categories


@lru_cache(maxsize=4)
def check_annotations(images: Artifact) -> None:
    """Raise a ValueError of one line for images whose boxes a detector cannot be trained on, or scored by.

    Before the images are stored their files are read for it: minutes for all of VOC on a slow disk, and once.
    """
    data = data_of(images)
    if data.kind != "voc":
        raise ValueError(f"data.kind={data.kind}: has no boxes, and detection needs them; use kind=voc")
    if data.is_raw:
        raise ValueError(f"data.storage={data.storage}: detection needs whole images; use storage=encoded")
    categories = categories_of(images)
    for split in ("train", "test"):
        counted = dict.fromkeys(categories, 0)
        difficult = dict.fromkeys(categories, 0)
        bad: list[dict[str, str]] = []
        for name, annotation, size in _heads(images, split, bad):
            objects_of(annotation, size, categories, name)
            for thing in annotation["boxes"]:
                (difficult if thing["difficult"] else counted)[thing["class"]] += 1
        refuse_if_too_many(bad, split, count_of(images, split), data)
        if not sum(counted.values()):
            raise ValueError(f"data.path={data.path}: the {split} images have no objects that count; annotate them")
        seen = [name for name in categories if counted[name] or difficult[name]]
        if len(seen) == 1:
            raise ValueError(
                f"data.path={data.path}: all objects of the {split} images are of one class, {seen[0]}; use images of "
                "two classes or more"
            )
        only = [name for name in categories if difficult[name] and not counted[name]]
        if split == "test" and only:
            raise ValueError(
                f"data.path={data.path}: all test objects of {', '.join(only)} are difficult, which leaves nothing "
                "to be found; use more test images or mend the annotations"
            )


def _heads(
    images: Artifact, split: str, bad: list[dict[str, str]]
) -> Iterator[tuple[str, Annotation, tuple[int, int]]]:
    """Name, annotation and (height, width) of every readable image of a split, stored or still to be stored.

    Of those still to be stored `bad` gets the others, whose pixels or XML cannot be read.
    """
    with quietly():
        if not images.exists():
            listing = opened(data_of(images)).splits[split]
            for picture in listing.part(np.arange(len(listing))).read():
                found = image_size(picture.content) if isinstance(picture.content, bytes) else picture.content
                if isinstance(found, BadImage):
                    bad.append({"name": picture.name, "reason": found.reason})
                elif isinstance(found, tuple) and picture.annotation is not None:
                    yield picture.name, dict(picture.annotation), found
            return
        names, annotations = names_and_annotations(images, split)
        rows = iter(zip(names, annotations, strict=True))
        for shard in shards_of(images, split):
            content = images.read_bytes(f"{shard['name']}.bytes")
            offsets = images.read_npy(f"{shard['name']}.offsets.npy", mmap=False)
            for start, stop in pairwise(offsets):
                size = image_size(content[start:stop])
                assert not isinstance(size, BadImage), "was decoded when it was stored"
                name, annotation = next(rows)
                yield name, annotation, size
