"""Bags of words (equations 3 and 4): from cached words of each position to soft labels, on the device."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


def bow_targets(
    words_NHW: Tensor, num_words: int, mode: Literal["count", "binary"] = "count", drop_border: bool = False
) -> Tensor:
    """L1-normalised bags y_NK of word maps [N, H, W] (or [N, views, H, W]: the views' words together)."""
    if drop_border:
        words_NHW = words_NHW[..., 1:-1, 1:-1]
    words_NU = words_NHW.flatten(1).long()
    if not words_NU.shape[1]:
        raise ValueError(
            f"word map {tuple(words_NHW.shape)}: nothing is left without its border; use drop_border=False"
        )
    counts_NK = torch.zeros(len(words_NU), num_words, device=words_NU.device)
    counts_NK.scatter_add_(1, words_NU, torch.ones_like(words_NU, dtype=counts_NK.dtype))
    y_NK = counts_NK if mode == "count" else (counts_NK > 0).to(counts_NK.dtype)
    return y_NK / y_NK.sum(1, keepdim=True)


def entropy(y_NK: Tensor) -> Tensor:
    """Entropy of each target in nats: the floor below which its cross-entropy cannot fall."""
    return -torch.xlogy(y_NK, y_NK).sum(1)
