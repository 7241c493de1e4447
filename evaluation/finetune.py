"""Fine-tuning with few labels: a network and a share of the training images go in, a classifier comes out.

The semi-supervised protocol: the whole network learns, with a small rate, and a new linear head with a large one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from bownet.config import Finetune, Optimiser, Perturbation
from bownet.images.perturb import perturb
from bownet.nets.taps import Backbone


def labelled_rows(labels_N: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.int64]:
    """The images whose labels are known: the same share of every class, one image at least, in rising order.

    A function of labels, fraction and seed alone, so that every network learns from the same images. A larger fraction
    with the same seed has all images of a smaller one.
    """
    chosen = []
    for c in np.unique(labels_N):
        rows = np.flatnonzero(labels_N == c)
        order = np.random.Generator(np.random.Philox(key=[seed, int(c)])).permutation(len(rows))
        chosen.append(rows[order[: share_of(len(rows), fraction)]])
    return np.sort(np.concatenate(chosen))


def share_of(images: int, fraction: float) -> int:
    """How many images of a class have labels."""
    return max(1, round(fraction * images))


class FinetuneTask(nn.Module):
    """Cross-entropy of a linear head on the pooled feature; `lr_scale` tells the loop what rate the head has."""

    lr_scale: Mapping[str, float]

    def __init__(
        self, backbone: Backbone, classes: int, crops: Perturbation | None, head_scale: float, seed: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        d = backbone.tap_channels[backbone.pooled]
        self.head = nn.Linear(d, classes)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(classes, d, generator=Generator().manual_seed(seed)) * 0.01)
            self.head.bias.zero_()
        self.crops = crops
        self.lr_scale = {"head": head_scale}
        self.may_rise = True  # the new head's rate is large for features as they are

    def logits(self, x_NCHW: Tensor) -> Tensor:
        return self.head(self.backbone(x_NCHW, (self.backbone.pooled,))[self.backbone.pooled])

    def forward(self, images_NHWC: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        assert self.crops is not None, "training needs crops"
        logits, label_N = self.logits(perturb(images_NHWC, self.crops, generator)), labels.long()
        return F.cross_entropy(logits, label_N), {"accuracy": (logits.argmax(1) == label_N).float().mean()}


def optimiser_of(config: Finetune) -> Optimiser:
    """The schedule of the protocol, with the backbone's rate."""
    return Optimiser(
        epochs=config.epochs,
        iterations_per_epoch=None,
        batch=config.batch,
        lr=config.lr,
        schedule="step",
        drops=config.drops,
        drop_factor=config.drop_factor,
        momentum=0.9,
        nesterov=False,
        weight_decay=config.weight_decay,
    )
