"""The patches that show what a word means: those nearest to its centroid, each from another image (figure 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bownet.words.vocabulary_file import Vocabulary


@dataclass(frozen=True)
class Places:
    """Places in images, at most some of each word, nearest first; all arrays are [P], sorted by word and distance."""

    word: NDArray[np.int64]
    image: NDArray[np.int64]
    row: NDArray[np.int64]  # of the feature map
    column: NDArray[np.int64]
    distance: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.word)

    def of(self, word: int) -> Places:
        here = slice(*np.searchsorted(self.word, [word, word + 1]))
        return Places(*(getattr(self, name)[here] for name in self.__dataclass_fields__))

    def only(self, words: NDArray[np.int64]) -> Places:
        """Those of some words."""
        here = np.isin(self.word, words)
        return Places(*(getattr(self, name)[here] for name in self.__dataclass_fields__))

    def __add__(self, other: Places) -> Places:
        names = self.__dataclass_fields__
        return Places(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))

    def nearest(self, most: int) -> Places:
        """At most so many of each word, each of another image; of equally near ones the earlier image."""
        order = np.lexsort((self.column, self.row, self.distance, self.image, self.word))
        word, image = self.word[order], self.image[order]
        first = np.ones(len(order), bool)
        first[1:] = (word[1:] != word[:-1]) | (image[1:] != image[:-1])
        kept = order[first]
        kept = kept[np.lexsort((self.image[kept], self.distance[kept], self.word[kept]))]
        rank = np.arange(len(kept)) - np.searchsorted(self.word[kept], self.word[kept])
        kept = kept[rank < most]
        return Places(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))


@torch.no_grad()
def places_of(maps_NCHW: Tensor, words_NHW: Tensor, vocabulary: Vocabulary, first: int, most: int) -> Places:
    """The nearest places of every word in some images, of which the first has this number; borders are left out."""
    inner = maps_NCHW[:, :, 1:-1, 1:-1].permute(0, 2, 3, 1)
    words = words_NHW[:, 1:-1, 1:-1].long()
    n, h, w, c = inner.shape
    vectors = inner.reshape(-1, c).to(vocabulary.centroids_KC.dtype)
    if vocabulary.pca:
        vectors = vocabulary.pca.transform(vectors)
    flat = words.reshape(-1)
    distance = torch.empty(len(flat))
    for part in torch.arange(len(flat)).split(65_536):
        distance[part] = (vectors[part] - vocabulary.centroids_KC[flat[part]]).square().sum(1).float()
    image, row, column = np.indices((n, h, w)).reshape(3, -1)
    found = Places(flat.numpy(), image + first, row + 1, column + 1, distance.numpy())
    return found.nearest(most)


def square_around(height: int, width: int, centre_y: float, centre_x: float, side: int) -> tuple[int, int, int]:
    """Top, left and side of a square around a point, moved inwards where it would leave the image."""
    side = min(side, height, width)
    top = int(np.clip(round(centre_y - side / 2), 0, height - side))
    left = int(np.clip(round(centre_x - side / 2), 0, width - side))
    return top, left, side


def cut_patch(image_HWC: NDArray[np.uint8], centre_y: float, centre_x: float, side: int) -> NDArray[np.uint8]:
    """The square around a point."""
    height, width = image_HWC.shape[:2]
    top, left, side = square_around(height, width, centre_y, centre_x, side)
    return image_HWC[top : top + side, left : left + side]
