"""Cosine prototypes for many episodes at once: features and episodes go in, the accuracy of each episode comes out.

The cosine of a query and a prototype is a sum over the support of cosines between images, divided by the length of the
support's sum, which is a sum of such cosines as well. So with the matrix of cosines between all images (their Gram
matrix) an episode is a few look-ups. All is done in single precision, and what that cannot decide in double: the
result is that of double precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from evaluation.episodes import Episodes, members

GRAM_BYTES = 1 << 30  # a larger matrix is not made
_CHUNK = 500  # episodes at a time
_FEATURE_BYTES = 64 << 20  # of the features that are looked at in one go
# What a cosine in single precision may be wrong by. 2048 positive values, where partial sums are largest, measured
# 4e-7 at most; a wider margin costs nothing but time.
_ERROR = 4e-6
_TINY = 1e-12

Margin = tuple[Tensor, Tensor]  # [E, W, Q] own prototype's cosine minus the best other's; [E] what it may be wrong by


def episode_scorer(features_ND: Tensor, labels_N: Tensor, queries: int) -> Callable[[Episodes], Tensor]:
    """A function of episodes: the share of queries whose most similar prototype is that of their class, [E].

    `queries` is how many will be asked in all: few of them are not worth a matrix of all images.
    """
    unit_ND = F.normalize(features_ND.double(), dim=1)
    single_ND = unit_ND.float()
    margins = _by_gram(single_ND, labels_N) if worth_a_gram(labels_N, queries) else _by_features(single_ND)

    def accuracy(episodes: Episodes) -> Tensor:
        right = []
        for support_EWS, query_EWQ in zip(*(part.split(_CHUNK) for part in episodes), strict=True):
            margin_EWQ, error_E = margins(Episodes(support_EWS, query_EWQ))
            right_EWQ = margin_EWQ > 0
            close = torch.nonzero(~(margin_EWQ.abs() > error_E[:, None, None]))  # where it is not a number, too
            if len(close):
                right_EWQ[tuple(close.T)] = _exactly(unit_ND, Episodes(support_EWS, query_EWQ), close)
            right.append(right_EWQ.double().mean((1, 2)))
        return torch.cat(right)

    return accuracy


def worth_a_gram(labels_N: Tensor, queries: int) -> bool:
    """Whether the matrix fits, and costs less than it saves: a product of each two images, or some of each query."""
    member_CM, _ = members(labels_N)
    columns = member_CM.numel()
    return 4 * len(labels_N) * columns <= GRAM_BYTES and len(labels_N) * columns <= 16 * queries


def _by_gram(unit_ND: Tensor, labels_N: Tensor) -> Callable[[Episodes], Margin]:
    """Rows are pairs of an image and a class, columns the places within the class: a sum over the support is a bag."""
    member_CM, size_C = members(labels_N)
    class_N = torch.unique(labels_N, return_inverse=True)[1]
    place_N = torch.empty_like(class_N)
    order_N = class_N.argsort(stable=True)
    place_N[order_N] = torch.arange(len(class_N)) - (size_C.cumsum(0) - size_C)[class_N[order_N]]
    classes = len(size_C)
    cosine_PM = (unit_ND @ unit_ND[member_CM.flatten()].T).view(len(unit_ND) * classes, -1)

    def margins(episodes: Episodes) -> Margin:
        support_EWS, query_EWQ = episodes
        e, w, shots = support_EWS.shape
        class_EW = class_N[support_EWS[..., 0]]
        row_EVWS = torch.add(class_EW.int()[:, None, :, None], support_EWS.int()[:, :, None], alpha=classes)
        sum_EVWM = F.embedding_bag(row_EVWS.view(-1, shots), cosine_PM, mode="sum").view(e, w, w, -1)
        score_EVWQ = sum_EVWM.gather(3, place_N[query_EWQ][:, None].expand(-1, w, -1, -1))
        own_EWM = sum_EVWM.diagonal(dim1=1, dim2=2).transpose(1, 2)
        length_EW = own_EWM.gather(2, place_N[support_EWS]).sum(2).clamp_(min=0).sqrt_().clamp_(min=_TINY)
        return _margin(score_EVWQ.div_(length_EW[:, :, None, None])), _error(length_EW, shots)

    return margins


def _by_features(unit_ND: Tensor) -> Callable[[Episodes], Margin]:
    def margins(episodes: Episodes) -> Margin:
        support_EWS, query_EWQ = episodes
        (_, w, shots), q, d = support_EWS.shape, query_EWQ.shape[2], unit_ND.shape[1]
        at_a_time = max(1, _FEATURE_BYTES // (4 * d * w * q))
        sum_EWD = F.embedding_bag(support_EWS.reshape(-1, shots), unit_ND, mode="sum").view(-1, w, d)
        length_EW = sum_EWD.norm(dim=2).clamp_(min=_TINY)
        prototype_EWD = sum_EWD.div_(length_EW[..., None])
        score = [
            torch.bmm(some_EWD, unit_ND[query.flatten()].view(len(query), w * q, d).transpose(1, 2))
            for some_EWD, query in zip(prototype_EWD.split(at_a_time), query_EWQ.split(at_a_time), strict=True)
        ]
        return _margin(torch.cat(score).view(-1, w, w, q)), _error(length_EW, shots)

    return margins


def _margin(score_EVWQ: Tensor) -> Tensor:
    """By how much the prototype of their own class is more similar to queries than any other, V. Spoils the scores."""
    diagonal_EQW = score_EVWQ.diagonal(dim1=1, dim2=2)
    own_EWQ = diagonal_EQW.transpose(1, 2).clone()
    diagonal_EQW.fill_(-torch.inf)
    return own_EWQ - score_EVWQ.amax(1)


def _error(length_EW: Tensor, shots: int) -> Tensor:
    """Errors grow as the mean of the support gets shorter than its parts."""
    return _ERROR * shots / length_EW.amin(1)


def _exactly(unit_ND: Tensor, episodes: Episodes, which_T3: Tensor) -> Tensor:
    """Whether queries (episode, way, number) are right; of prototypes with equal cosines the first wins."""
    support_EWS, query_EWQ = episodes
    (_, w, shots), q = support_EWS.shape, query_EWQ.shape[2]
    episode_T, way_T, number_T = which_T3.T
    right_T = torch.empty(len(which_T3), dtype=torch.bool)
    at_a_time = max(1, _FEATURE_BYTES // (8 * unit_ND.shape[1] * w * max(shots, w * q)))
    for some in episode_T.unique().split(at_a_time):
        prototype_AWD = F.normalize(unit_ND[support_EWS[some]].mean(2), dim=2)
        t = torch.nonzero((episode_T >= some[0]) & (episode_T <= some[-1]))[:, 0]
        here_T = torch.searchsorted(some, episode_T[t])
        image_T = query_EWQ[episode_T[t], way_T[t], number_T[t]]
        score_TW = torch.einsum("td,twd->tw", unit_ND[image_T], prototype_AWD[here_T])
        right_T[t] = score_TW.argmax(1) == way_T[t]
    return right_T
