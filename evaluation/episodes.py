"""Few-shot episodes from a seed (appendix C.3): labels go in, numbers of support and query images come out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from bownet.config import Fewshot

_CHUNK = 100  # episodes that are drawn at a time: part of what a seed means
_RANDOM_BITS = 24  # of a random float, which is a multiple of 2^-24


class Episodes(NamedTuple):
    """Image numbers, distinct within an episode; row w of each is a class of its own."""

    support_EWS: Tensor
    query_EWQ: Tensor


def seeded_episodes(labels_N: Tensor, shots: int, config: Fewshot) -> Episodes:
    """All episodes with so many shots. The same labels and settings give the same ones, whatever the model."""
    generator = torch.Generator().manual_seed(config.seed * 1000 + shots)
    counts = [min(_CHUNK, config.episodes - start) for start in range(0, config.episodes, _CHUNK)]
    drawn = [draw_episodes(labels_N, count, shots, config, generator) for count in counts]
    return Episodes(torch.cat([d.support_EWS for d in drawn]), torch.cat([d.query_EWQ for d in drawn]))


def draw_episodes(labels_N: Tensor, count: int, shots: int, config: Fewshot, generator: Generator) -> Episodes:
    """Classes and then images of each are drawn without replacement: those with the smallest random keys."""
    member_CM, size_C = members(labels_N)
    chosen_EW = torch.rand(count, len(size_C), generator=generator).argsort(1)[:, : config.ways]
    key_EWM = torch.rand(count, config.ways, member_CM.shape[1], generator=generator)
    place_M = torch.arange(member_CM.shape[1])
    if len(size_C.unique()) > 1:
        key_EWM[place_M >= size_C[chosen_EW][..., None]] = 2.0  # padding is never drawn
    # Key and place in one whole number: numpy sorts these ten times as fast as torch finds the smallest of floats.
    code_EWM = (key_EWM * 2**_RANDOM_BITS).to(torch.int64).mul_(1 << 32).add_(place_M).numpy()
    drawn_EWI = np.sort(code_EWM, axis=2)[..., : shots + config.queries] & 0xFFFFFFFF
    image_EWI = member_CM[chosen_EW].gather(2, torch.from_numpy(drawn_EWI))
    return Episodes(image_EWI[..., :shots], image_EWI[..., shots:])


def members(labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The images of each class that occurs, padded with the first image to the size of the largest; and the sizes."""
    size_C = torch.unique(labels_N, return_counts=True)[1]
    groups = labels_N.argsort(stable=True).split(size_C.tolist())
    return torch.nn.utils.rnn.pad_sequence(groups, batch_first=True), size_C


def check_enough_images(images_per_class: list[int], config: Fewshot) -> None:
    need = max(config.shots) + config.queries
    if len(images_per_class) < config.ways:
        raise ValueError(f"fewshot.ways={config.ways}: the set has {len(images_per_class)} classes, use fewer ways")
    if min(images_per_class) < need:
        raise ValueError(
            f"fewshot.shots={config.shots}: {max(config.shots)} shots and {config.queries} queries need {need} images "
            f"of each class, the smallest has {min(images_per_class)}; use fewer shots or more images"
        )
