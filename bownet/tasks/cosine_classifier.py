"""The supervised few-shot baseline of section 4.1 (CC): labels in, a cosine classifier of the global feature out."""

from __future__ import annotations

from bownet.nets.heads import CosineHead
from bownet.nets.taps import Backbone
from bownet.tasks.supervised import ClassifierTask


def cosine_classifier_task(backbone: Backbone, classes: int, pad: int) -> ClassifierTask:
    """Features are compared by their direction alone, as few-shot prototypes will be."""
    return ClassifierTask(backbone, CosineHead(backbone.tap_channels[backbone.pooled], classes), pad)
