"""Settings of the images."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from bownet.config.base import PositiveInt, Settings

Kind = Literal[
    "scenes",
    "folder",
    "parquet",
    "webdataset",
    "cifar10",
    "cifar100",
    "miniimagenet",
    "imagenet",
    "places205",
    "voc",
]
Storage = Literal["auto", "raw", "encoded"]
KINDS: tuple[str, ...] = get_args(Kind)
RAW_UP_TO = 96  # pixels: smaller images are stored as such, of which a whole set fits into memory
WITHOUT_FILES = ("scenes", "cifar10", "cifar100")  # their images are pixels, of which there is no file to be kept


def is_raw(storage: Storage, image_size: int, kind: str = "folder") -> bool:
    """Whether images of this size are stored, and so seen, as whole small squares, or as files with a view cut out."""
    small = image_size <= RAW_UP_TO or kind in WITHOUT_FILES
    return storage == "raw" or (storage == "auto" and small)


class Data(Settings):
    """Which images, and how many."""

    kind: Kind = "scenes"
    """Where images come from. `scenes` is drawn on the spot from a seed; all others are read from `path`."""
    path: str | None = None
    """Folder, file or URI of the data set. CIFAR is downloaded into it when absent."""
    labels: Literal["auto", "folders", "none"] = "auto"
    """Image folders only: `folders` takes each image's class from its folder, `none` ignores folders, `auto` looks."""
    image_size: Annotated[int, Field(ge=16, le=1024)] = 32
    """Side in pixels of the square images that networks see."""
    storage: Storage = "auto"
    """`raw` keeps image_size squares as pixels, `encoded` the files as they are; `auto` is raw up to 96 pixels,
    and where images have no files, as in scenes and CIFAR."""
    train: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """At most this many training images, evenly over the classes; None means all (4000 scenes)."""
    test: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """At most this many test images; None means all (1200 scenes)."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the training images that is used, of every class alike: 0.2 is the paper's ImageNet-20%."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of each class that is held out as test images when the set has no test images of its own."""
    novel_per_class: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Images of each novel category, for few-shot episodes; None means all (100 scenes)."""
    voc_train: Literal["trainval07", "trainval12", "trainval07+12"] = "trainval07+12"
    """VOC only: the images to train on. The test images are those of VOC2007."""
    image_column: str = "image"
    """Parquet only: the column of encoded images, binary or {bytes, path}."""
    label_column: str = "label"
    """Parquet only: the column of class numbers or names; without it the images have no labels."""
    max_bad_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Share of images of a split that may be unreadable before the run stops."""
    shard_size: PositiveInt = 1000
    """Images per stored file, the unit of parallel work and of resuming."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of drawn pictures and of every choice of images; training has its own seed."""

    @model_validator(mode="after")
    def _path_where_needed(self) -> Data:
        if self.kind == "scenes" and self.path is not None:
            raise ValueError(
                f"path={self.path}: scenes are drawn, not read; name the kind of data there, such as folder"
            )
        if self.kind != "scenes" and not self.path:
            raise ValueError(f"path=None: kind={self.kind} is read from files, name their folder with --data.path")
        return self

    @property
    def is_raw(self) -> bool:
        """Whether images are stored as pixels of their final size."""
        return is_raw(self.storage, self.image_size, self.kind)
