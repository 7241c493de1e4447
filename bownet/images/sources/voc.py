"""PASCAL VOC goes in, as VOCdevkit; images with their objects come out, for classification and detection.

An image has many classes, so there is no single label. Each picture carries
{"boxes": [{"class", "box": [xmin, ymin, xmax, ymax], "difficult", "truncated"}], "classes": {name: 1 or 0}}
where boxes are VOC's (the first pixel is 1, the last one belongs to the object) and 0 means: only difficult ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from bownet.config import Data
from bownet.images.decode import BadImage
from bownet.images.sources.files import MISSING, FileListing, FilePart, mean_size, read_file, require_folder, sizes_of
from bownet.images.sources.listing import Listing, Part, Picture, Rows, Source
from bownet.images.sources.names import digest

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
_TRAIN = {"trainval07": ("VOC2007",), "trainval12": ("VOC2012",), "trainval07+12": ("VOC2007", "VOC2012")}
_ARCHIVES = {
    ("VOC2007", "trainval"): "VOCtrainval_06-Nov-2007.tar",
    ("VOC2007", "test"): "VOCtest_06-Nov-2007.tar",
    ("VOC2012", "trainval"): "VOCtrainval_11-May-2012.tar",
}


@dataclass(frozen=True)
class VocPart(Part):
    """Images with their XML."""

    files: FilePart

    def read(self) -> Iterator[Picture]:
        for file, picture in zip(self.files.names, self.files.read(), strict=True):
            xml = read_file(self.files.root, annotation_file(file))
            try:
                annotation = parse_annotation(b"" if isinstance(xml, BadImage) else xml)
            except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
                reason = xml.reason if isinstance(xml, BadImage) else str(error)
                yield Picture(picture.name, BadImage(f"its annotation: {reason}"))
                continue
            yield Picture(picture.name, picture.content, annotation)


@dataclass(frozen=True, eq=False)
class VocListing(Listing):
    """The images of some lists."""

    files: FileListing
    labels: None = None

    def __len__(self) -> int:
        return len(self.files)

    def part(self, rows: Rows) -> VocPart:
        return VocPart(self.files.part(rows))


def open_voc(data: Data) -> Source:
    """`train` as data.voc_train says, `test` of VOC2007; images in the order of the lists."""
    assert data.path is not None
    root = require_folder(data.path, "VOC2007/ and VOC2012/")
    root = os.path.join(root, "VOCdevkit") if os.path.isdir(os.path.join(root, "VOCdevkit")) else root
    sets = {"train": [(year, "trainval") for year in _TRAIN[data.voc_train]], "test": [("VOC2007", "test")]}
    splits: dict[str, VocListing] = {}
    parts: list[Any] = []
    notes = []
    for split, wanted in sets.items():
        names = [name for year, image_set in wanted for name in _read_list(root, year, image_set, data)]
        files = FileListing(root, names, sizes_of(root, names))
        xml = [read_file(root, annotation_file(name)) for name in names]
        annotations = [a.reason if isinstance(a, BadImage) else digest(a) for a in xml]
        splits[split] = VocListing(files)
        parts += [
            split,
            names,
            files.sizes,
            annotations,
        ]
        absent = int(np.count_nonzero(files.sizes == MISSING))
        if absent:
            notes.append(
                f"{absent} of {len(names)} images of {data.voc_train if split == 'train' else 'test07'} are missing"
            )
    listings = [listing.files for listing in splits.values()]
    categories = _categories(root, sorted({year for wanted in sets.values() for year, _ in wanted}))
    return Source(splits, categories, digest("voc", [*categories], *parts), mean_size(listings), tuple(notes))


def xml_root(xml: bytes) -> ElementTree.Element:
    """VOC's files declare no document type, where names could be defined that grow without end when they are read."""
    if b"\0" in xml:  # the search below is for single bytes, and XML in UTF-16 always holds a zero
        raise ValueError("is in UTF-16, or no text; save it as UTF-8")
    if b"<!" in xml.replace(b"<!--", b"").replace(b"<![CDATA[", b""):
        raise ValueError("has a document type, which annotations do not need; remove the line that begins with <!")
    return ElementTree.fromstring(xml)  # noqa: S314 (without a document type nothing can be defined in it)


def parse_annotation(xml: bytes) -> dict[str, Any]:
    """The objects of one image, from VOC's XML."""
    boxes = []
    classes: dict[str, int] = {}
    for thing in xml_root(xml).iterfind("object"):
        name = _text(thing, "name")
        is_difficult = thing.findtext("difficult", "0").strip() == "1"
        boxes.append(
            {
                "class": name,
                "box": [
                    whole_pixels(_text(thing, f"bndbox/{side}"), side) for side in ("xmin", "ymin", "xmax", "ymax")
                ],
                "difficult": is_difficult,
                "truncated": thing.findtext("truncated", "0").strip() == "1",
            }
        )
        classes[name] = max(classes.get(name, 0), int(not is_difficult))
    return {"boxes": boxes, "classes": classes}


def whole_pixels(text: str, name: str) -> int:
    """A number of an annotation; VOC2012 has a few boxes with fractions of a pixel."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} is {text[:40]!r}; write a finite number of pixels")
    return round(number)


def _text(thing: ElementTree.Element, path: str) -> str:
    text = thing.findtext(path)
    if text is None:
        raise ValueError(f"an object has no {path}")
    return text.strip()


def annotation_file(image: str) -> str:
    year, _, name = image.split("/")
    return f"{year}/Annotations/{name.rpartition('.')[0]}.xml"


def _read_list(root: str, year: str, image_set: str, data: Data) -> list[str]:
    path = os.path.join(root, year, "ImageSets", "Main", f"{image_set}.txt")
    if not os.path.exists(path):
        raise ValueError(
            f"data.path={data.path}: no {year}/ImageSets/Main/{image_set}.txt, which data.voc_train={data.voc_train} "
            f"needs; unpack {_ARCHIVES[year, image_set]} there"
        )
    with open(path, encoding="utf-8") as file:
        names = [f"{year}/JPEGImages/{line.split()[0]}.jpg" for line in file if line.strip()]
    if not names:
        raise ValueError(
            f"data.path={data.path}: {year}/ImageSets/Main/{image_set}.txt lists no images; use a whole one"
        )
    return names


def _categories(root: str, years: list[str]) -> tuple[str, ...]:
    """The classes that have lists: VOC's 20, or others in a set that was made in its format."""
    ending = "_trainval.txt"
    names = set()
    for year in years:
        main = os.path.join(root, year, "ImageSets", "Main")
        names |= {file.removesuffix(ending) for file in os.listdir(main) if file.endswith(ending)}
    return tuple(sorted(names)) if names - set(CLASSES) else CLASSES
