"""Vectors for tests of clustering, and the slow way to their nearest centroids."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def blobs(n: int, d: int, centres: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    generator = Generator().manual_seed(seed)
    centre = 4 * torch.randn(centres, d, generator=generator)
    return centre[torch.arange(n) % centres] + spread * torch.randn(n, d, generator=generator)


def brute_force(x_ND: Tensor, centroids_KD: Tensor) -> tuple[list[int], list[float]]:
    index, distance = [], []
    for x in x_ND.tolist():
        squares = [sum((a - b) ** 2 for a, b in zip(x, c, strict=True)) for c in centroids_KD.tolist()]
        distance.append(min(squares))
        index.append(squares.index(distance[-1]))
    return index, distance
