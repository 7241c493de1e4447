"""A figure and the images that it is of go in; the figure comes out with a line below it that tells their scale.

Artifacts are shared by runs, so that no run stands there: who draws a figure of one run writes that over it.
"""

from __future__ import annotations

from typing import Any

from pipelines.stages.pictures import count_of, data_of
from pipelines.store import Artifact


def signed(figure: Any, images: Artifact, whole: bool = False) -> Any:
    """`whole` images are looked at as they are, not cut to one size."""
    from pipelines.drawing.style import sign

    data = data_of(images)
    size = "" if whole else f" of {data.image_size} pixels"
    sign(figure, f"{data.kind}: {count_of(images, 'train'):,} training images{size}")
    return figure
