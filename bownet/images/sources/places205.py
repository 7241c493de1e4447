"""Places205 goes in, with its lists train_places205.csv and val_places205.csv of "path class"; 205 classes come out.

The validation images are the test images: the labels of the official test images are not published.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bownet.config import Data
from bownet.images.sources.files import MISSING, FileListing, mean_size, require_folder, sizes_of
from bownet.images.sources.listing import Source
from bownet.images.sources.names import digest

_LISTS = {"train": "train_places205.csv", "test": "val_places205.csv"}
_PLACES_OF_LISTS = ("trainvalsplit_places205", "")
_PLACES_OF_IMAGES = ("data/vision/torralba/deeplearning/images256", "images256", "")


def open_places205(data: Data) -> Source:
    """Images in the order of their paths."""
    assert data.path is not None
    root = require_folder(data.path, "trainvalsplit_places205/ and the images")
    rows = {split: _read_list(root, name, data.path) for split, name in _LISTS.items()}
    first = rows["train"][0][0]
    place = next((p for p in _PLACES_OF_IMAGES if os.path.isdir(os.path.join(root, p, os.path.dirname(first)))), None)
    if place is None:
        raise ValueError(
            f"data.path={data.path}: {first} of {_LISTS['train']} is neither there nor in {_PLACES_OF_IMAGES[0]}; "
            "unpack imagesPlaces205_resize.tar.gz there"
        )
    folder = os.path.join(root, place)
    notes = ["the validation images are used as test images"]
    splits: dict[str, FileListing] = {}
    parts: list[Any] = []
    for split, some in rows.items():
        names = [name for name, _ in some]
        sizes = sizes_of(folder, names)
        splits[split] = FileListing(folder, names, sizes, np.array([number for _, number in some], np.int64))
        parts += [split, names, sizes, splits[split].labels]
        absent = int(np.count_nonzero(sizes == MISSING))
        if absent:
            notes.append(f"{absent} of {len(names)} files of {_LISTS[split]} are not there")
    categories = _categories([pair for some in rows.values() for pair in some])
    return Source(splits, categories, digest("places205", *parts), mean_size([*splits.values()]), tuple(notes))


def _read_list(root: str, name: str, path: str) -> list[tuple[str, int]]:
    found = next((p for place in _PLACES_OF_LISTS if os.path.exists(p := os.path.join(root, place, name))), None)
    if found is None:
        raise ValueError(f"data.path={path}: no {name} there or in {_PLACES_OF_LISTS[0]}/; add the lists of Places205")
    rows = []
    with open(found, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            image, _, label = line.strip().replace(",", " ").rpartition(" ")
            if image and label.isdigit():
                rows.append((image.strip().lstrip("/"), int(label)))
            elif line.strip():
                raise ValueError(
                    f"data.path={path}: line {number} of {name} is {line.strip()!r}, not a path and a class"
                )
    if not rows:
        raise ValueError(f"data.path={path}: {name} lists no images; use a whole one")
    return sorted(rows)


def _categories(rows: list[tuple[str, int]]) -> tuple[str, ...]:
    """A class is called as the folder of its images below its letter: `abbey` for a/abbey/."""
    names = {number: os.path.dirname(image).partition("/")[2] or os.path.dirname(image) for image, number in rows}
    return tuple(names.get(number, str(number)) for number in range(max(names) + 1))
