"""Retrieval by frozen features: every query ranks a gallery by the cosine, mean average precision comes out.

An answer is relevant if it is of the query's class. Equal similarities share their rank, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bownet.config import Retrieval
from evaluation.score import Score

_BLOCK_BYTES = 256 << 20  # of similarities at a time

Floats = NDArray[np.floating]


def retrieval_score(
    gallery_ND: Tensor, gallery_labels_N: Tensor, query_MD: Tensor, query_labels_M: Tensor, config: Retrieval
) -> Score:
    """`map` and `precision_<rank>` in percent, means over queries; one whose class the gallery lacks is left out."""
    check_ranks(config.ranks, len(gallery_ND))
    gallery_ND, query_MD = F.normalize(gallery_ND, dim=1), F.normalize(query_MD, dim=1)
    rows = max(1, _BLOCK_BYTES // (gallery_ND.element_size() * len(gallery_ND)))
    average: list[Floats] = []
    precise: list[Floats] = []
    by_class: dict[int, float] = {}
    for label in torch.unique(query_labels_M).tolist():
        relevant = torch.nonzero(gallery_labels_N == label)[:, 0]
        if not len(relevant):
            continue
        of_class = len(average)
        for queries in torch.nonzero(query_labels_M == label)[:, 0].split(rows):
            cosine_BN = query_MD[queries] @ gallery_ND.T
            found_BR = np.sort(cosine_BN[:, relevant].numpy(), axis=1)
            all_BN = cosine_BN.numpy()
            all_BN.sort(axis=1)
            average.append(average_precision(found_BR, all_BN))
            precise.append(np.stack([precision_at(found_BR, all_BN, r) for r in config.ranks], 1))
        by_class[label] = 100 * float(np.concatenate(average[of_class:]).mean())
    if not average:
        raise ValueError("no query has an image of its class in the gallery; use splits of the same classes")
    ap, precision_QR = np.concatenate(average), np.concatenate(precise)
    metrics = {"map": 100 * float(ap.mean())}
    metrics |= {f"precision_{r}": 100 * float(precision_QR[:, i].mean()) for i, r in enumerate(config.ranks)}
    classes = range(int(query_labels_M.max()) + 1)
    return Score(metrics, {"map_by_class": [by_class.get(c) for c in classes], "left_out": len(query_MD) - len(ap)})


def average_precision(found_BR: Floats, all_BN: Floats) -> Floats:
    """Of similarities of the relevant images and of all, both in rising order: the mean precision at relevant ranks."""
    relevant_BR = found_BR.shape[1] - _below(found_BR, found_BR)
    answers_BR = all_BN.shape[1] - _below(all_BN, found_BR)
    precision: Floats = (relevant_BR / answers_BR).mean(1)
    return precision


def precision_at(found_BR: Floats, all_BN: Floats, rank: int) -> Floats:
    """The relevant share of the first answers; of equally similar ones at the last rank, what is to be expected."""
    last_B1 = all_BN[:, -rank, None]
    better = [x.shape[1] - _below(x, last_B1, "right") for x in (found_BR, all_BN)]
    equal = [x.shape[1] - _below(x, last_B1) - n for x, n in zip((found_BR, all_BN), better, strict=True)]
    share: Floats = (better[0] + (rank - better[1]) * equal[0] / equal[1])[:, 0] / rank
    return share


def check_ranks(ranks: Sequence[int], gallery_images: int) -> None:
    for rank in ranks:
        if rank > gallery_images:
            raise ValueError(
                f"retrieval.ranks={rank}: there are {gallery_images} images to find, use 1..{gallery_images}"
            )


def _below(sorted_BN: Floats, value_BK: Floats, side: str = "left") -> NDArray[np.int64]:
    """How many of each row are below its values; with `right`, how many are not above."""
    found = torch.searchsorted(torch.from_numpy(sorted_BN), torch.from_numpy(value_BK).contiguous(), side=side)
    return found.numpy()
