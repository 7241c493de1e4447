"""Bags of words (equations 3 and 4): from cached words of each position to soft labels, on the words' device."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

BAGS = 5  # of a spatial pyramid: the whole map, then its quarters row by row


def bow_targets(
    words_NHW: Tensor,
    num_words: int,
    mode: Literal["count", "binary"] = "count",
    drop_border: bool = False,
    pyramid: bool = False,
) -> Tensor:
    """L1-normalised bags y_NK of word maps [N, H, W] or [N, views, H, W].

    Views are the image and its horizontal flip: their words go into one bag.
    A pyramid gives [N, 5, K]: the whole map and its four quarters (section 4.1, Sp-BoWNet).
    """
    if mode not in ("count", "binary"):
        raise ValueError(f"student.bow={mode!r}: known are count, binary")
    words = words_NHW if words_NHW.ndim == 4 else words_NHW[:, None]
    if drop_border:
        words = words[..., 1:-1, 1:-1]
    h, w = words.shape[2:]
    if not h * w:
        raise ValueError(
            f"word map {tuple(words_NHW.shape)}: nothing is left without its border; use drop_border=False"
        )
    words = words.long()
    if not pyramid:
        return _bag(words, num_words, mode)
    # A word of the flip belongs to the place in the image it came from.
    words = torch.cat([words[:, :1], words[:, 1:].flip(3)], 1)
    # The middle row of an odd map is in both halves, so that a flip only exchanges them.
    above, below, left, right = slice((h + 1) // 2), slice(h // 2, None), slice((w + 1) // 2), slice(w // 2, None)
    quarters = [words[:, :, row, column] for row in (above, below) for column in (left, right)]
    return torch.stack([_bag(part, num_words, mode) for part in (words, *quarters)], 1)


def _bag(words: Tensor, num_words: int, mode: str) -> Tensor:
    words_NU = words.flatten(1)
    counts_NK = torch.zeros(len(words_NU), num_words, device=words_NU.device)
    counts_NK.scatter_add_(1, words_NU, torch.ones_like(words_NU, dtype=counts_NK.dtype))
    y_NK = counts_NK if mode == "count" else (counts_NK > 0).to(counts_NK.dtype)
    return y_NK / y_NK.sum(1, keepdim=True)


def entropy(y_NK: Tensor) -> Tensor:
    """Entropy of each target in nats: the floor below which its cross-entropy cannot fall."""
    return -torch.xlogy(y_NK, y_NK).sum(-1)
