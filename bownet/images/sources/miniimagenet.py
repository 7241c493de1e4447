"""MiniImageNet goes in: images/ with train.csv, val.csv and test.csv; its base, validation and novel classes come out.

The three lists are three sets of classes (64, 16, 20). The 64 are trained on; their test images are held out of them.
"""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np

from bownet.config import Data
from bownet.images.sources.files import MISSING, FileListing, mean_size, require_folder, sizes_of
from bownet.images.sources.listing import Source
from bownet.images.sources.names import digest, number_classes

_LISTS = {"train": "train.csv", "val": "val.csv", "novel": "test.csv"}


def open_miniimagenet(data: Data) -> Source:
    """Base classes have the first numbers, then the validation classes, then the novel ones; each in order of name."""
    assert data.path is not None
    root = require_folder(data.path, "images/, train.csv, val.csv and test.csv")
    rows = {s: _read_list(root, name) for s, name in _LISTS.items() if s != "val" or os.path.exists(f"{root}/{name}")}
    numbered = {s: number_classes({s: [label for _, label in some]}) for s, some in rows.items()}
    splits: dict[str, FileListing] = {}
    categories: tuple[str, ...] = ()
    parts: list[Any] = []
    notes = []
    for split, some in rows.items():
        labels, names = numbered[split]
        shared = sorted(set(names) & set(categories))
        if shared:
            raise ValueError(
                f"data.path={data.path}: class {shared[0]} is in two lists; the lists must not share classes"
            )
        files = [f"images/{name}" for name, _ in some]
        splits[split] = FileListing(root, files, sizes_of(root, files), labels[split] + len(categories))
        categories += names
        parts += [split, files, splits[split].sizes, splits[split].labels]
        absent = int(np.count_nonzero(splits[split].sizes == MISSING))
        if absent == len(files):
            raise ValueError(f"data.path={data.path}: no image of {_LISTS[split]} is in images/; unpack them there")
        if absent:
            notes.append(f"{absent} of {len(files)} files of {_LISTS[split]} are not in images/")
    fingerprint = digest("miniimagenet", [*categories], *parts)
    return Source(splits, categories, fingerprint, mean_size([*splits.values()]), tuple(notes))


def _read_list(root: str, name: str) -> list[tuple[str, str]]:
    """File and class of every image of a list, sorted by file."""
    path = os.path.join(root, name)
    if not os.path.exists(path):
        raise ValueError(f"data.path={root}: no {name} there; MiniImageNet is images/, train.csv, val.csv and test.csv")
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        for wanted in ("filename", "label"):
            if wanted not in columns:
                raise ValueError(f"data.path={root}: {name} has no column {wanted}, only {', '.join(columns)}; add it")
        rows = sorted((row["filename"], row["label"]) for row in reader)
    if not rows:
        raise ValueError(f"data.path={root}: {name} lists no images; use a whole one")
    return rows
