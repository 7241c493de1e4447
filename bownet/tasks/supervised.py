"""Supervised learning, the upper bound of the comparisons: labels in, a classifier of the global feature out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.images.augment import pad_crop_flip, to_float
from bownet.nets.taps import Backbone


class ClassifierTask(nn.Module):
    """Cross-entropy of any head over the classes. Targets are labels 0, 1, ..., one per image."""

    def __init__(self, backbone: Backbone, head: nn.Module, pad: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.pad = pad

    def forward(self, images_NHWC: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        x = pad_crop_flip(to_float(images_NHWC), self.pad, generator)
        logits = self.head(self.backbone(x, (self.backbone.pooled,))[self.backbone.pooled])
        label_N = labels.long()
        return F.cross_entropy(logits, label_N), {"accuracy": (logits.argmax(1) == label_N).float().mean()}


def supervised_task(backbone: Backbone, classes: int, pad: int) -> ClassifierTask:
    """A linear classifier."""
    return ClassifierTask(backbone, nn.Linear(backbone.tap_channels[backbone.pooled], classes), pad)
