"""BoWNet (section 2.3): predict the bag of words of the clean image from a perturbed one."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.config import Student
from bownet.images.cutmix import draw_mix
from bownet.images.perturb import perturb
from bownet.nets.heads import BowHead
from bownet.nets.taps import Backbone
from bownet.words.bow import bow_targets, entropy


class BowTask(nn.Module):
    """Loss of equation 6. Targets are the cached words of the clean images, [N, views, h, w]."""

    def __init__(self, backbone: Backbone, num_words: int, config: Student) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = BowHead(backbone.tap_channels[backbone.pooled], num_words)
        self.num_words = num_words
        self.config = config

    def forward(self, images_NHWC: Tensor, words: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        y_NK = bow_targets(words, self.num_words, self.config.bow, self.config.drop_border)
        x = perturb(images_NHWC, self.config.perturbation, generator)
        if self.config.cutmix:
            mix = draw_mix(len(x), x.shape[2], x.shape[3], generator)
            x, y_NK = mix.images(x), mix.targets(y_NK)
        feature_NC = self.backbone(x, (self.backbone.pooled,))[self.backbone.pooled]
        loss = soft_cross_entropy(self.head(feature_NC), y_NK)
        return loss, {"floor": entropy(y_NK).mean(), "gamma": self.head.gamma.detach()}


def soft_cross_entropy(logits_NK: Tensor, y_NK: Tensor) -> Tensor:
    """-Σ_k y^k log softmax^k, mean over the batch."""
    return -(y_NK * F.log_softmax(logits_NK, dim=1)).sum(1).mean()
