"""Linear classification on frozen features (section 4.1.2): SGD on cached feature vectors, top-1 on the test set."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from bownet.config import Linear


def linear_accuracy(
    train_ND: Tensor, train_labels_N: Tensor, test_ND: Tensor, test_labels_N: Tensor, config: Linear, seed: int
) -> Mapping[str, float]:
    """Train a linear classifier and return `top1` and `train_top1` in percent."""
    classes = int(max(train_labels_N.max(), test_labels_N.max())) + 1
    generator = torch.Generator().manual_seed(seed)
    if config.batch_norm:
        mean, std = train_ND.mean(0), train_ND.std(0, correction=0).clamp(min=1e-5)
        train_ND, test_ND = (train_ND - mean) / std, (test_ND - mean) / std
    n, d = train_ND.shape
    weight = (torch.randn(classes, d, generator=generator) * 0.01).requires_grad_()
    bias = torch.zeros(classes, requires_grad=True)
    optimiser = torch.optim.SGD(
        [weight, bias], lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )
    for epoch in range(config.epochs):
        optimiser.param_groups[0]["lr"] = config.lr * config.drop_factor ** (epoch // config.drop_every)
        order = torch.randperm(n, generator=generator)
        for rows in order.split(config.batch):
            optimiser.zero_grad()
            F.cross_entropy(F.linear(train_ND[rows], weight, bias), train_labels_N[rows]).backward()
            optimiser.step()
    with torch.no_grad():
        return {
            "top1": _percent_right(F.linear(test_ND, weight, bias), test_labels_N),
            "train_top1": _percent_right(F.linear(train_ND, weight, bias), train_labels_N),
        }


def _percent_right(scores_NC: Tensor, labels_N: Tensor) -> float:
    return 100 * (scores_NC.argmax(1) == labels_N).double().mean().item()
