"""Scenes as PASCAL VOC: a seed goes in, a VOCdevkit folder with pictures, boxes and class lists comes out.

For the VOC07 classification and detection protocols where the real images are not at hand. Every file has the
official format, so that any reader of VOC reads it. Category names have underscores: VOC's lists are split at blanks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from bownet.images.scenes import CATEGORIES, Drawing, Layout, draw, layout_of_scenes

NAMES = tuple(category.replace(" ", "_") for category in CATEGORIES)

_CHUNK = 64
_SHOWN = 0.10  # an object that shows less cannot be told from clutter: annotators could not have named it
_DIFFICULT = 1 / 3  # an object that shows less has lost most of its form
_TINY = 0.2  # of the picture's height: a texture has up to four periods, too fine to tell on a smaller object


@dataclass(frozen=True)
class Thing:
    """One annotated object. The box is VOC's: the first pixel is 1, and xmax and ymax belong to the object."""

    name: str
    truncated: bool
    difficult: bool
    xmin: int
    ymin: int
    xmax: int
    ymax: int


def write_vocdevkit(
    folder: Path, trainval: int, test: int, seed: int, height: int = 120, width: int = 160, year: str = "2007"
) -> Path:
    """Write `folder`/VOCdevkit/VOC`year` and return it. The same arguments give the same bytes."""
    if trainval < 2 or test < 1:
        raise ValueError(f"trainval={trainval}, test={test}: use at least 2 and 1, so that train, val and test exist")
    root = Path(folder) / "VOCdevkit" / f"VOC{year}"
    if root.exists():
        raise ValueError(f"folder={folder}: {root.name} is already there, use another folder or remove it")
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / part).mkdir(parents=True)

    # Random numbers of their own, so that no picture shares its background with one of another year or another set.
    stream = seed + (int(year) << 40)
    found: dict[str, list[Thing]] = {}
    for start in range(0, trainval + test, _CHUNK):
        count = min(_CHUNK, trainval + test - start)
        layout = layout_of_scenes(count, stream, start)
        drawing = draw(layout, height, width, stream + (1 << 33), start)
        for i in range(count):
            name = f"{start + i + 1:06d}" if year == "2007" else f"{year}_{start + i + 1:06d}"
            found[name] = _things(layout, drawing, i)
            Image.fromarray(drawing.images_NHWC[i]).save(root / "JPEGImages" / f"{name}.jpg", quality=95)
            (root / "Annotations" / f"{name}.xml").write_text(_annotation(name, year, height, width, found[name]))

    names = list(found)
    images = {"trainval": names[:trainval], "test": names[trainval:]}
    images |= {"train": images["trainval"][::2], "val": images["trainval"][1::2]}
    for image_set, members in images.items():
        main = root / "ImageSets" / "Main"
        (main / f"{image_set}.txt").write_text("".join(f"{name}\n" for name in members))
        for category in NAMES:
            rows = (f"{name} {_presence(found[name], category):2d}\n" for name in members)
            (main / f"{category}_{image_set}.txt").write_text("".join(rows))
    return root


def drawn_vocdevkit(cache: Path) -> Path:
    """The VOCdevkit that `path=scenes` stands for, drawn once into the folder: 120 and 60 images of 2007, 24 of 2012.

    Every category has the three training images and the test image that the VOC07 protocol needs.
    """
    made = Path(cache) / "scenes-voc-1"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=made.parent) as folder:
            write_vocdevkit(Path(folder) / "new", trainval=120, test=60, seed=1, height=96, width=128)
            write_vocdevkit(Path(folder) / "new", trainval=24, test=1, seed=1, height=96, width=128, year="2012")
            with suppress(OSError):  # another process was first: its images are the same
                (Path(folder) / "new").rename(made)
    return made / "VOCdevkit"


def _things(layout: Layout, drawing: Drawing, i: int) -> list[Thing]:
    """The objects of image i that are annotated; the one that shows most is kept in any case, as a difficult one."""
    height, width = drawing.images_NHWC.shape[1:3]
    x0, y0, x1, y1 = drawing.box_NM4[i].T
    visible = np.where((layout.category_NM[i] >= 0) & (x1 > x0), drawing.visible_NM[i], 0)
    shown = (visible >= _SHOWN) | ((visible > 0) & (visible == visible.max()))
    difficult = (visible < _DIFFICULT) | (np.minimum(x1 - x0, y1 - y0) < _TINY * height)
    truncated = (x0 == 0) | (y0 == 0) | (x1 == width) | (y1 == height)
    return [
        Thing(
            name=NAMES[layout.category_NM[i, j]],
            truncated=bool(truncated[j]),
            difficult=bool(difficult[j]),
            xmin=int(x0[j]) + 1,  # from zero and exclusive to one and inclusive: only the start moves
            ymin=int(y0[j]) + 1,
            xmax=int(x1[j]),
            ymax=int(y1[j]),
        )
        for j in np.flatnonzero(shown)
    ]


def _presence(things: Sequence[Thing], category: str) -> int:
    """1: there is one; 0: only difficult ones; -1: none."""
    difficult = [thing.difficult for thing in things if thing.name == category]
    return -1 if not difficult else 0 if all(difficult) else 1


def _annotation(name: str, year: str, height: int, width: int, things: Sequence[Thing]) -> str:
    objects = "".join(
        f"\t<object>\n\t\t<name>{t.name}</name>\n\t\t<pose>Unspecified</pose>\n"
        f"\t\t<truncated>{t.truncated:d}</truncated>\n\t\t<difficult>{t.difficult:d}</difficult>\n"
        f"\t\t<bndbox>\n\t\t\t<xmin>{t.xmin}</xmin>\n\t\t\t<ymin>{t.ymin}</ymin>\n"
        f"\t\t\t<xmax>{t.xmax}</xmax>\n\t\t\t<ymax>{t.ymax}</ymax>\n\t\t</bndbox>\n\t</object>\n"
        for t in things
    )
    return (
        f"<annotation>\n\t<folder>VOC{year}</folder>\n\t<filename>{name}.jpg</filename>\n"
        "\t<source>\n\t\t<database>scenes</database>\n\t\t<annotation>scenes</annotation>\n"
        "\t\t<image>drawn</image>\n\t</source>\n\t<owner>\n\t\t<name>?</name>\n\t</owner>\n"
        f"\t<size>\n\t\t<width>{width}</width>\n\t\t<height>{height}</height>\n\t\t<depth>3</depth>\n\t</size>\n"
        f"\t<segmented>0</segmented>\n{objects}</annotation>\n"
    )
