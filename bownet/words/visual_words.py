"""Visual words of images that people have: files or arrays go in, a word for each position comes out (equation 1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.config.data import Storage, is_raw
from bownet.images.decode import BadImage
from bownet.images.views import clean_file_view, stored_view
from bownet.nets.taps import Backbone, freeze
from bownet.words.vocabulary import feature_maps
from bownet.words.vocabulary_file import Vocabulary


def visual_words(
    images: NDArray[np.uint8] | Sequence[str | Path],
    teacher: Backbone,
    vocabulary: Vocabulary,
    size: int | None = None,
    storage: Storage = "auto",
) -> NDArray[np.int64]:
    """[N, h, w] words of uint8 images [N, H, W, 3], or of files, which are cut to squares of `size` pixels.

    Files are seen as the pipeline sees those of a data set of that size with this `data.storage`. The teacher must be
    the network that the vocabulary was made of; one that is known to be another is refused.
    """
    if teacher.key is not None:
        vocabulary.require_teacher(teacher.key, vocabulary.tap)
    pixels = images if isinstance(images, np.ndarray) else _of_files(images, size, storage)
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8 or not len(pixels):
        raise ValueError(f"images {pixels.dtype} {pixels.shape}: expected uint8 [N, H, W, 3], at least one")
    freeze(teacher)
    maps = feature_maps(teacher, torch.from_numpy(np.ascontiguousarray(pixels)), vocabulary.tap)
    return vocabulary.assign(maps).numpy()


def _of_files(paths: Sequence[str | Path], size: int | None, storage: Storage) -> NDArray[np.uint8]:
    if size is None:
        raise ValueError("size=None: files are cut to squares; give the size that the teacher was trained with")
    if not paths:
        raise ValueError("images: there are none")
    raw = is_raw(storage, size)
    return np.stack([_read(Path(path), size, raw) for path in paths])


def _read(path: Path, size: int, raw: bool) -> NDArray[np.uint8]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name an image that can be read") from error
    made = stored_view(content, size) if raw else clean_file_view(content, size)
    if isinstance(made, BadImage):
        raise ValueError(f"{path}: no image that can be read ({made.reason})")
    return made
