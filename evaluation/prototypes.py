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

from bownet.products import inner
from evaluation.episodes import Episodes, members

GRAM_BYTES = 1 << 30  # a larger matrix is not made
_CHUNK = 1000  # episodes at a time
_TILE = 200  # rows of a Gram matrix at a time
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
    side = members(labels_N)[0].numel()
    return 4 * side**2 <= GRAM_BYTES and side**2 <= 16 * queries


def _by_gram(unit_ND: Tensor, labels_N: Tensor) -> Callable[[Episodes], Margin]:
    """The sum over a support of its cosines to all images of a class is a bag of rows.

    A place is a class and a number in it; rows are pairs of a place and a class, columns the numbers in the class.
    """
    member_CM, size_C = members(labels_N)
    classes, most = member_CM.shape
    real_CM = torch.arange(most) < size_C[:, None]  # the rest is padding
    place_N = torch.empty_like(labels_N)
    place_N[member_CM[real_CM]] = torch.nonzero(real_CM.flatten())[:, 0]
    cosine_PM = gram(unit_ND[member_CM.flatten()]).view(classes * most * classes, most)

    def margins(episodes: Episodes) -> Margin:
        support_EWS, query_EWQ = (place_N.index_select(0, part.flatten()).view(part.shape) for part in episodes)
        (e, w, shots), q = support_EWS.shape, query_EWQ.shape[2]
        class_EW1 = support_EWS[..., :1] // most
        # Bags of the same two classes one after another: their rows stay in the cache. Look-ups follow the same order.
        order_B = (class_EW1 * classes + class_EW1.transpose(1, 2)).flatten().argsort()
        place_B = torch.empty_like(order_B).scatter_(0, order_B, torch.arange(len(order_B)))
        of_B, for_B = order_B // w, order_B // (w * w) * w + order_B % w  # whose support; for whose queries
        row_BS = (support_EWS * classes).int().view(-1, shots).index_select(0, of_B)
        row_BS += class_EW1.int().view(-1, 1).index_select(0, for_B)
        sum_BM = F.embedding_bag(row_BS, cosine_PM, mode="sum")
        query_BQ = (query_EWQ - most * class_EW1).view(-1, q).index_select(0, for_B)
        score_EVWQ = sum_BM.gather(1, query_BQ).index_select(0, place_B).view(e, w, w, q)
        own_X = place_B.view(e, w, w).diagonal(dim1=1, dim2=2).flatten()
        own_XM = sum_BM.index_select(0, own_X)
        square_EW = own_XM.gather(1, (support_EWS - most * class_EW1).view(-1, shots)).sum(1).view(e, w)
        length_EW = square_EW.clamp_(min=0).sqrt_().clamp_(min=_TINY)
        return _margin(score_EVWQ.div_(length_EW[:, :, None, None])), _error(length_EW, shots)

    return margins


def gram(x_SD: Tensor) -> Tensor:
    """All products of two rows, [S, S]. Those below the diagonal are computed, tile by tile; the others are copied."""
    product_SS = torch.empty(len(x_SD), len(x_SD))
    for start in range(0, len(x_SD), _TILE):
        stop = min(start + _TILE, len(x_SD))
        product_SS[start:stop, :stop] = inner(x_SD[start:stop], x_SD[:stop])
        product_SS[:start, start:stop] = product_SS[start:stop, :start].T
    return product_SS


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
        sum_XD = F.embedding_bag(support_EWS[some].view(-1, shots), unit_ND, mode="sum")
        prototype_AWD = F.normalize(sum_XD, dim=1).view(len(some), w, -1)
        t = torch.nonzero((episode_T >= some[0]) & (episode_T <= some[-1]))[:, 0]
        here_T = torch.searchsorted(some, episode_T[t])
        image_T = query_EWQ[episode_T[t], way_T[t], number_T[t]]
        score_TW = torch.einsum("td,twd->tw", unit_ND[image_T], prototype_AWD[here_T])
        right_T[t] = score_TW.argmax(1) == way_T[t]
    return right_T
