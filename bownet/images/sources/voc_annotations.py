"""All annotations of a list of VOC images, without the images: to refuse bad ones before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

from PIL import Image

from bownet.images.decode import BadImage
from bownet.images.sources.files import MISSING, read_file
from bownet.images.sources.voc import VocListing, annotation_file, parse_annotation, whole_pixels, xml_root

SLACK = 1  # pixels that a box may leave its image by, from rounding


@dataclass(frozen=True)
class Annotations:
    """Of the images that are there."""

    found: list[dict[str, Any]]  # as `parse_annotation` gives them
    unreadable: list[str]  # "file: reason" of those that have none
    outside: list[str]  # "file: which box" of those whose box leaves the image


def read_annotations(listing: VocListing) -> Annotations:
    """Reads the XML of every image, and the head of an image only where its XML does not tell its size."""
    files = listing.files
    read = Annotations([], [], [])
    for name, size in zip(files.names, files.sizes.tolist(), strict=True):
        if size == MISSING:
            continue
        file = annotation_file(name)
        xml = read_file(files.root, file)
        if isinstance(xml, BadImage):
            read.unreadable.append(f"{file}: {xml.reason}")
            continue
        try:
            annotation = parse_annotation(xml)
        except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
            read.unreadable.append(f"{file}: {error}")
            continue
        read.found.append(annotation)
        extent = _width_height(xml) or _of_image(read_file(files.root, name))
        if extent and (reason := box_outside(annotation, *extent)):
            read.outside.append(f"{file}: {reason}")
    return read


def box_outside(annotation: dict[str, Any], width: int, height: int) -> str | None:
    """The first box that is empty or leaves the image, in words."""
    for thing in annotation["boxes"]:
        xmin, ymin, xmax, ymax = thing["box"]
        shown = f"the box {xmin},{ymin},{xmax},{ymax} of a {thing['class']}"
        if xmin > xmax or ymin > ymax:
            return f"{shown} is empty"
        if min(xmin, ymin) < 1 - SLACK or xmax > width + SLACK or ymax > height + SLACK:
            return f"{shown} is outside of the image of {width}x{height} pixels"
    return None


def _width_height(xml: bytes) -> tuple[int, int] | None:
    root = xml_root(xml)
    try:
        width, height = (whole_pixels(root.findtext(f"size/{side}", "0"), side) for side in ("width", "height"))
    except ValueError:
        return None
    return (width, height) if width > 0 and height > 0 else None


def _of_image(content: bytes | BadImage) -> tuple[int, int] | None:
    """None for an image that cannot be opened: the images stage will tell."""
    if isinstance(content, BadImage):
        return None
    try:
        with Image.open(BytesIO(content)) as image:
            return image.size
    except Exception:  # Pillow raises whatever the bytes lead it to
        return None
