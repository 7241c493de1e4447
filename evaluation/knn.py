"""Weighted nearest neighbours on frozen features: the k most similar training images vote, accuracy by k comes out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bownet.config import Knn
from evaluation.score import Score
from evaluation.tally import Tally

_BLOCK_BYTES = 256 << 20  # of similarities at a time


def knn_score(train_ND: Tensor, train_labels_N: Tensor, test_ND: Tensor, test_labels_N: Tensor, config: Knn) -> Score:
    """`top1_<k>` in percent for each number of neighbours; details have the accuracy of each class."""
    check_neighbours(config.neighbours, len(train_ND))
    classes = int(max(train_labels_N.max(), test_labels_N.max())) + 1
    tallies = {k: Tally(classes) for k in config.neighbours}
    train_ND = F.normalize(train_ND, dim=1)
    rows = max(1, _BLOCK_BYTES // (train_ND.element_size() * len(train_ND)))
    for start in range(0, len(test_ND), rows):
        cosine_MN = F.normalize(test_ND[start : start + rows], dim=1) @ train_ND.T
        cosine_MK, nearest_MK = cosine_MN.topk(max(config.neighbours), dim=1)  # in order: the first k are the nearest
        vote_MK = ((cosine_MK - cosine_MK[:, :1]) / config.temperature).exp()  # relative to the first, or it overflows
        label_MK = train_labels_N[nearest_MK]
        for k, tally in tallies.items():
            votes_MC = torch.zeros(len(vote_MK), classes, dtype=vote_MK.dtype)
            votes_MC.scatter_add_(1, label_MK[:, :k], vote_MK[:, :k])
            tally.add_answers(votes_MC.argmax(1), test_labels_N[start : start + rows])
    return Score(
        {f"top1_{k}": tally.metrics()["top1"] for k, tally in tallies.items()},
        {str(k): {"accuracy_by_class": tally.accuracy_by_class()} for k, tally in tallies.items()},
    )


def check_neighbours(neighbours: Sequence[int], train_images: int) -> None:
    for k in neighbours:
        if k > train_images:
            raise ValueError(f"knn.neighbours={k}: there are {train_images} training images, use 1..{train_images}")
