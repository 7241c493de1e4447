"""What tasks put on a backbone: Ω of equation 5, its plain linear variant, and RotNet's residual head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck

from bownet.nets.taps import Backbone, global_pool
from bownet.nets.wide_resnet import WideResNet, residual_block


class BowHead(nn.Module):
    """Ω of equation 5: unit-norm word weights, one learnable scale. f_NC -> logits_NK."""

    def __init__(self, channels: int, num_words: int) -> None:
        super().__init__()
        self.weight_KC = nn.Parameter(torch.randn(num_words, channels) * (2 / channels) ** 0.5)
        self.gamma = nn.Parameter(torch.tensor(3.0))  # 10 collapses a small net at lr 0.1

    def forward(self, f_NC: Tensor) -> Tensor:
        return self.gamma * F.linear(f_NC, F.normalize(self.weight_KC, dim=1))


class RotationHead(nn.Module):
    """One more residual block, pooling, and a linear layer over the four rotations. Feature map -> logits_N4."""

    def __init__(self, backbone: Backbone, layers: int) -> None:
        super().__init__()
        c = list(backbone.tap_channels.values())[-1]
        if isinstance(backbone, WideResNet):
            self.block: nn.Module = residual_block(c, c, 2, layers)
        else:
            self.block = nn.Sequential(*[Bottleneck(c, c // 4) for _ in range(layers)])
        self.classify = nn.Linear(c, 4)

    def forward(self, map_NCHW: Tensor) -> Tensor:
        return self.classify(global_pool(self.block(map_NCHW)))
