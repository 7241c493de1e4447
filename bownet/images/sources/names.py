"""What names tell: which files are images, which split a file belongs to, which number a class has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Labels = NDArray[np.int64]

SUFFIXES = frozenset({"jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm", "jp2"})
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
}


def suffix_of(name: str) -> str:
    """`jpeg` of `a/b.JPEG`; empty without one."""
    _, dot, ending = name.rpartition(".")
    return ending.lower() if dot and "/" not in ending else ""


def split_of(name: str) -> str | None:
    """`train`, `test` or `val` for `data/train-00000-of-00002.parquet`, `test/0000.tar`; the nearest word decides."""
    for part in reversed(name.lower().split("/")):
        words = [word for word in re.split(r"[^a-z]+", part) if word in SPLITS]
        if words:
            return SPLITS[words[0]]
    return None


def assign_splits(found: Mapping[str | None, T], path: str, notes: list[str]) -> dict[str, T]:
    """`train`, `test`, `val` of what was found below `path`. A single split is for training, whatever its name; a set
    without test images uses its validation images as such."""
    splits = {split: part for split, part in found.items() if split}
    if len(found) == 1:
        name, part = next(iter(found.items()))
        if name not in (None, "train"):
            notes.append(f"there are only {name} images: they are trained on")
        return {"train": part}
    if "train" not in splits:
        if None not in found:
            raise ValueError(f"data.path={path}: only {' and '.join(sorted(splits))} images there; add training images")
        splits["train"] = found[None]
    elif None in found:
        notes.append("files whose names do not say train, test or val were left out")
    if "test" not in splits and "val" in splits:
        splits["test"] = splits.pop("val")
        notes.append("the validation images are used as test images")
    return splits


def printable(name: str) -> str:
    """The name as text that can be stored anywhere: bytes that are not UTF-8 are written as \\xe9."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def number_classes(of_split: Mapping[str, Sequence[str | int]]) -> tuple[dict[str, Labels], tuple[str, ...]]:
    """Classes as numbers 0, 1, ... in the order of their names (of their values, if those are integers)."""
    categories = sorted(
        {value for values in of_split.values() for value in values}, key=lambda v: (isinstance(v, str), v)
    )
    number = {value: i for i, value in enumerate(categories)}
    labels = {s: np.array([number[v] for v in values], np.int64) for s, values in of_split.items()}
    return labels, tuple(printable(str(value)) for value in categories)


def digest(*parts: str | bytes | Iterable[str] | Iterable[int] | NDArray[np.generic] | None) -> str:
    """A fingerprint of text, bytes, lists of text or numbers, and arrays; where one part ends is part of it."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            content = f"{part.dtype.str}{part.shape}".encode() + np.ascontiguousarray(part).tobytes()
        elif isinstance(part, bytes):
            content = part
        elif part is None or isinstance(part, str):
            content = repr(part).encode("utf-8", "surrogateescape")
        else:
            content = "\0".join(map(str, part)).encode("utf-8", "surrogateescape")
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()
