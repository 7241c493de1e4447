"""Linear classification on frozen features (section 4.1.2): SGD on cached feature vectors, accuracy on the test set.

A step is two products and little else, so the gradient is written out: softmax minus the truth, times the features.
It is the trajectory of torch.optim.SGD on the cross-entropy, up to rounding, at several times the speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bownet.config import Linear
from evaluation.score import Score
from evaluation.tally import Tally

_BLOCK = 8192  # rows that are scored at a time
_ALIGNED = 16  # floats of a cache line
NORM_EPSILON = 1e-5  # added to variances, as torch's batch norm does: a value that never changes is not blown up


@dataclass(frozen=True)
class Classifier:
    """What was learned: weights, with the bias as the last column, and how features are standardised before them."""

    weight_CE: Tensor
    shift_D: Tensor | None = None
    scale_D: Tensor | None = None

    def scores(self, x_ND: Tensor) -> Tensor:
        if self.shift_D is not None and self.scale_D is not None:
            x_ND = (x_ND - self.shift_D) * self.scale_D
        return torch.addmm(self.weight_CE[:, -1], x_ND, self.weight_CE[:, :-1].T)


def linear_score(
    features: Mapping[str, tuple[Tensor, Tensor]],
    train_labels_N: Tensor,
    test_labels_N: Tensor,
    config: Linear,
    seed: int,
    pooled: str | None = None,
) -> Score:
    """A classifier for each tap, of its training and test features [N, D].

    Metrics in percent are `<tap>/top1`, `<tap>/top5` where there are more than five classes, and `<tap>/train_top1`;
    those of the tap `pooled` without its name as well.
    """
    classes = int(max(train_labels_N.max(), test_labels_N.max())) + 1
    metrics: dict[str, float] = {}
    details: dict[str, Any] = {}
    for tap, (train_ND, test_ND) in features.items():
        classifier = fit_linear(train_ND, train_labels_N, classes, config, seed)
        if not torch.isfinite(classifier.weight_CE).all():
            raise ValueError(
                f"linear.lr={config.lr}: the classifier of {tap} has diverged; use a smaller rate or linear.batch_norm"
            )
        test = tally(classifier, test_ND, test_labels_N)
        train_top1 = tally(classifier, train_ND, train_labels_N).metrics()["top1"]
        found = test.metrics() | {"train_top1": train_top1}
        if tap == pooled:
            metrics |= found
        metrics |= {f"{tap}/{name}": value for name, value in found.items()}
        details[tap] = test.details()
    return Score(metrics, details)


@torch.no_grad()
def fit_linear(train_ND: Tensor, label_N: Tensor, classes: int, config: Linear, seed: int) -> Classifier:
    """SGD with momentum on the softmax cross-entropy; weight decay acts on weights and bias alike."""
    generator = torch.Generator().manual_seed(seed)
    d = train_ND.shape[1]
    if config.batch_norm:
        # What BatchNorm1d without scale and shift does to one batch of all training images: it divides by their number,
        # not by one less, which it does for its moving statistics alone.
        var_D, mean_D = torch.var_mean(train_ND, 0, correction=0)
        start = Classifier(torch.zeros(classes, d + 1), mean_D, (var_D + NORM_EPSILON).rsqrt())
    else:
        start = Classifier(torch.zeros(classes, d + 1))
    weight_CE = start.weight_CE  # E = D + 1: the bias is the weight of a feature that is always one
    weight_CE[:, :d] = torch.randn(classes, d, generator=generator) * 0.01
    momentum_CE, m = torch.zeros_like(weight_CE), config.momentum
    for epoch in range(config.epochs):
        lr = config.lr * config.drop_factor ** (epoch // config.drop_every)
        for x_BE, label_1B, minus_one_1B in _batches(train_ND, label_N, start, config.batch, generator):
            error_CB = torch.mm(weight_CE, x_BE.T).softmax(0)  # classes first: the products are a tenth faster so
            error_CB.scatter_add_(0, label_1B, minus_one_1B)
            before_CE = momentum_CE * m if config.nesterov else None
            momentum_CE.addmm_(error_CB, x_BE, beta=m, alpha=1 / len(x_BE)).add_(weight_CE, alpha=config.weight_decay)
            if before_CE is None:
                weight_CE.add_(momentum_CE, alpha=-lr)
            else:  # the gradient is momentum - before, and a step goes along gradient + m * momentum
                weight_CE.add_(momentum_CE, alpha=-lr * (1 + m)).add_(before_CE, alpha=lr)
    return start


@torch.no_grad()
def tally(classifier: Classifier, x_ND: Tensor, label_N: Tensor) -> Tally:
    """Answers of the classifier, block by block."""
    counted = Tally(len(classifier.weight_CE))
    for start in range(0, len(x_ND), _BLOCK):
        rows = slice(start, start + _BLOCK)
        counted.add(classifier.scores(x_ND[rows]), label_N[rows])
    return counted


def _batches(
    x_ND: Tensor, label_N: Tensor, like: Classifier, batch: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """An epoch in random order. Rows are gathered batch by batch into one place, which then stays in the cache."""
    n, d = x_ND.shape
    place_BE = torch.ones(batch, -(-(d + 1) // _ALIGNED) * _ALIGNED)[:, : d + 1]
    minus_one_1B = torch.full((1, batch), -1.0)
    order_N = torch.randperm(n, generator=generator)
    label_1N = label_N[order_N][None]
    for start in range(0, n, batch):
        rows = order_N[start : start + batch]
        here = place_BE[: len(rows), :d]
        torch.index_select(x_ND, 0, rows, out=here)
        if like.shift_D is not None and like.scale_D is not None:
            here.sub_(like.shift_D).mul_(like.scale_D)
        yield place_BE[: len(rows)], label_1N[:, start : start + batch], minus_one_1B
