"""ImageNet (ILSVRC2012) goes in, as the official archives or Kaggle's unpack; its classes in order of wnid come out.

Training images lie in train/<wnid>/. Validation images are the test images; they lie in val/<wnid>/, or flat in val/
beside one list of their classes: LOC_val_solution.csv (Kaggle), val.txt ("name index", Caffe), or the devkit's
ILSVRC2012_validation_ground_truth.txt with meta.mat, which tells the class of its numbers.
"""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bownet.config import Data
from bownet.images.sources.files import FileListing, mean_size, require_folder, walk
from bownet.images.sources.listing import Source
from bownet.images.sources.names import SUFFIXES, digest, number_classes, suffix_of

_KAGGLE = "ILSVRC/Data/CLS-LOC"
_PLACES_OF_LISTS = ("", "val", "data", "devkit/data", "ILSVRC2012_devkit_t12/data", "caffe_ilsvrc12")
_SOLUTION, _CAFFE = "LOC_val_solution.csv", "val.txt"
_TRUTH, _META = "ILSVRC2012_validation_ground_truth.txt", "meta.mat"
_WORDS = ("LOC_synset_mapping.txt", "synset_words.txt", "words.txt")


def open_imagenet(data: Data) -> Source:
    """`train`, and `test` of the validation images."""
    assert data.path is not None
    given = require_folder(data.path, "train/ and val/")
    root = os.path.join(given, _KAGGLE) if os.path.isdir(os.path.join(given, _KAGGLE)) else given
    if not os.path.isdir(os.path.join(root, "train")):
        raise ValueError(f"data.path={data.path}: no train/ there; unpack ILSVRC2012_img_train as train/<wnid>/*.JPEG")
    notes: list[str] = []
    names, sizes, wnids = _images(root, "train")
    if not all(wnids):
        raise ValueError(f"data.path={data.path}: images in train/ itself; sort them into train/<wnid>/")
    if not names:
        raise ValueError(f"data.path={data.path}: no images in train/<wnid>/; unpack the inner tar of every class too")
    labels, known = number_classes({"train": wnids})
    splits = {"train": FileListing(root, names, sizes, labels["train"])}

    if os.path.isdir(os.path.join(root, "val")):
        names, sizes, folders = _images(root, "val")
        of_image = folders if all(folders) else _listed_classes((root, given), names, known, data.path)
        number = {wnid: i for i, wnid in enumerate(known)}
        keep = [i for i, wnid in enumerate(of_image) if wnid in number]
        if len(keep) < len(names):
            notes.append(f"{len(names) - len(keep)} validation images of classes that train/ has not were left out")
        if keep:
            test = np.array([number[of_image[i]] for i in keep], np.int64)
            splits["test"] = FileListing(root, [names[i] for i in keep], sizes[keep], test)
            notes.append("the validation images are used as test images")
    parts: list[Any] = [p for s, x in splits.items() for p in (s, x.names, x.sizes, x.labels)]
    fingerprint = digest("imagenet", [*known], *parts)
    return Source(splits, _titles(known, (root, given)), fingerprint, mean_size([*splits.values()]), tuple(notes))


def _images(root: str, split: str) -> tuple[list[str], NDArray[np.int64], list[str]]:
    """Name, size and class folder ("" if flat) of every image."""
    names, sizes = walk(os.path.join(root, split))
    keep = [i for i, name in enumerate(names) if suffix_of(name) in SUFFIXES]
    folders = [names[i].rpartition("/")[0].partition("/")[0] for i in keep]
    return [f"{split}/{names[i]}" for i in keep], sizes[keep], folders


def _find(roots: tuple[str, ...], name: str) -> str | None:
    paths = (os.path.join(root, place, name) for root in roots for place in _PLACES_OF_LISTS)
    return next((path for path in paths if os.path.exists(path)), None)


def _listed_classes(roots: tuple[str, ...], names: list[str], wnids: tuple[str, ...], path: str) -> list[str]:
    """The wnid of each image of a flat val/."""
    images = [os.path.basename(name) for name in names]
    if solution := _find(roots, _SOLUTION):
        with open(solution, newline="") as file:
            of = {row["ImageId"]: row["PredictionString"].split()[0] for row in csv.DictReader(file)}
        return _looked_up(of, [image.rpartition(".")[0] for image in images], _SOLUTION, path)
    if listing := _find(roots, _CAFFE):
        with open(listing) as file:
            pairs = [line.split() for line in file if line.strip()]
        highest = max(int(number) for _, number in pairs)
        if highest >= len(wnids):
            found = f"{_CAFFE} numbers {highest + 1} classes, train/ has {len(wnids)}"
            raise ValueError(f"data.path={path}: {found}; complete train/ or use {_SOLUTION}, which names classes")
        return _looked_up({os.path.basename(n): wnids[int(k)] for n, k in pairs}, images, _CAFFE, path)
    truth, meta = _find(roots, _TRUTH), _find(roots, _META)
    if truth and meta:
        wnid_of = _wnid_of_id(meta)
        with open(truth) as file:
            numbers = [int(line) for line in file if line.strip()]
        of = {f"ILSVRC2012_val_{i:08d}": wnid_of[number] for i, number in enumerate(numbers, 1)}
        return _looked_up(of, [image.rpartition(".")[0] for image in images], _TRUTH, path)
    missing = (
        f"{_TRUTH} is there but not {_META}, which tells the class of its numbers" if truth else "no list is there"
    )
    raise ValueError(
        f"data.path={path}: the images of val/ are in no class folders, and {missing}; "
        f"add {_SOLUTION}, {_CAFFE}, or both {_TRUTH} and {_META} of the devkit"
    )


def _looked_up(of: dict[str, str], images: list[str], listing: str, path: str) -> list[str]:
    absent = [image for image in images if image not in of]
    if absent:
        raise ValueError(
            f"data.path={path}: {listing} has no class for {absent[0]} ({len(absent)} images); use a whole one"
        )
    return [of[image] for image in images]


def _wnid_of_id(meta: str) -> dict[int, str]:
    """ILSVRC2012_ID -> wnid, from the devkit's Matlab file."""
    from scipy.io import loadmat  # comes with scikit-learn

    synsets = np.atleast_1d(loadmat(meta, squeeze_me=True)["synsets"])
    return {int(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in synsets}


def _titles(wnids: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    """`tench (n01440764)` where a list of synset words is there: two classes are called crane."""
    path = next((found for name in _WORDS if (found := _find(roots, name))), None)
    if path is None:
        return wnids
    with open(path, encoding="utf-8") as file:
        words = dict(line.strip().split(maxsplit=1) for line in file if len(line.split()) > 1)
    return tuple(f"{words[wnid].split(',')[0]} ({wnid})" if wnid in words else wnid for wnid in wnids)
