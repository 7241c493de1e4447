"""Visual words of images that people have: files or arrays go in, a word for each position comes out (equation 1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.images.decode import BadImage
from bownet.images.views import centre_view
from bownet.nets.taps import Backbone, freeze
from bownet.words.vocabulary import feature_maps
from bownet.words.vocabulary_file import Vocabulary


def visual_words(
    images: NDArray[np.uint8] | Sequence[str | Path], teacher: Backbone, vocabulary: Vocabulary, size: int | None = None
) -> NDArray[np.int64]:
    """[N, h, w] words of uint8 images [N, H, W, 3], or of files, whose middle is cut to `size` pixels.

    The teacher must be the network that the vocabulary was made of.
    """
    pixels = images if isinstance(images, np.ndarray) else _of_files(images, size)
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8 or not len(pixels):
        raise ValueError(f"images {pixels.dtype} {pixels.shape}: expected uint8 [N, H, W, 3], at least one")
    freeze(teacher)
    maps = feature_maps(teacher, torch.from_numpy(np.ascontiguousarray(pixels)), vocabulary.tap)
    return vocabulary.assign(maps).numpy()


def _of_files(paths: Sequence[str | Path], size: int | None) -> NDArray[np.uint8]:
    if size is None:
        raise ValueError("size=None: files are cut to squares; give the size that the teacher was trained with")
    if not paths:
        raise ValueError("images: there are none")
    return np.stack([_read(Path(path), size) for path in paths])


def _read(path: Path, size: int) -> NDArray[np.uint8]:
    try:
        pixels = centre_view(path.read_bytes(), size, round(size * 8 / 7))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name an image that can be read") from error
    if isinstance(pixels, BadImage):
        raise ValueError(f"{path}: no image that can be read ({pixels.reason})")
    return pixels
