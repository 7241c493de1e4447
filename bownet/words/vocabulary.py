"""A teacher's features as vectors, and vectors as visual words (section 2.1)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bownet.images.augment import to_float
from bownet.nets.taps import Backbone
from bownet.words.vocabulary_file import Vocabulary

_BATCH = 250


@torch.inference_mode()
def feature_maps(teacher: Backbone, images_NHWC: Tensor, tap: str) -> Tensor:
    """Φ̂(x) for stored images, on the CPU: [N, C, h, w] for a map, [N, C] for the pooled tap."""
    device = next(teacher.parameters()).device
    return torch.cat([teacher(to_float(x.to(device)), (tap,))[tap].float().cpu() for x in images_NHWC.split(_BATCH)])


def sample_vectors(map_NCHW: Tensor, per_image: int, seed: int, first: int) -> Tensor:
    """`per_image` feature vectors of each image, border left out: [N * per_image, C].

    The positions of image `first + i` depend on the seed and on its number only, not on the shard it is in.
    """
    inner = map_NCHW[:, :, 1:-1, 1:-1].flatten(2)  # N C U
    n, c, u = inner.shape
    position_NP = np.stack([_rng(seed, first + i).permutation(u)[:per_image] for i in range(n)])
    index = torch.from_numpy(position_NP)[:, None].expand(n, c, -1)
    return inner.gather(2, index).transpose(1, 2).reshape(-1, c).contiguous()


@torch.inference_mode()
def online_words(teacher: Backbone, vocabulary: Vocabulary, x_NCHW: Tensor) -> Tensor:
    """q(x̃) of a batch as the student sees it, [N, 1, h, w], on its device: targets y(x̃) of the ablation in table 2."""
    return vocabulary.assign(teacher(x_NCHW, (vocabulary.tap,))[vocabulary.tap].float())[:, None]


def perplexity(counts_K: Tensor) -> float:
    """exp of the entropy of the word frequencies: how many words are really in use."""
    p = counts_K.double() / counts_K.sum()
    return float(torch.exp(-torch.xlogy(p, p).sum()))


def _rng(seed: int, image: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, image]))
