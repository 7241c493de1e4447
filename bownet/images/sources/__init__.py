"""Settings go in, an opened data set comes out: its splits, classes and fingerprint. One file per format."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bownet.config import Data
from bownet.images.sources.cifar import open_cifar10, open_cifar100
from bownet.images.sources.folder import open_folder
from bownet.images.sources.imagenet import open_imagenet
from bownet.images.sources.listing import Listing, Part, Picture, Source
from bownet.images.sources.miniimagenet import open_miniimagenet
from bownet.images.sources.parquet import open_parquet
from bownet.images.sources.places205 import open_places205
from bownet.images.sources.scenes import open_scenes
from bownet.images.sources.selecting import select
from bownet.images.sources.voc import open_voc
from bownet.images.sources.webdataset import open_webdataset

__all__ = ["READERS", "Listing", "Part", "Picture", "Source", "open_source"]

READERS: dict[str, Callable[[Data], Source]] = {
    "scenes": open_scenes,
    "folder": open_folder,
    "parquet": open_parquet,
    "webdataset": open_webdataset,
    "cifar10": open_cifar10,
    "cifar100": open_cifar100,
    "miniimagenet": open_miniimagenet,
    "imagenet": open_imagenet,
    "places205": open_places205,
    "voc": open_voc,
}


def open_source(data: Data) -> Source:
    """Open a data set and choose the images that the settings ask for. What the user can mend is a ValueError."""
    source = READERS[data.kind](data)
    labels = source.splits["train"].labels
    if labels is not None and len(np.unique(labels)) < 2:
        only = source.categories[int(labels[0])]
        remedy = "use --data.labels none" if data.kind == "folder" else "name data with more classes"
        raise ValueError(f"data.path={data.path}: all training images are of one class, {only}; {remedy}")
    return select(source, data)
