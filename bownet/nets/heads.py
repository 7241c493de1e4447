"""What tasks put on a backbone: Ω of equation 5 and its plain linear variant, heads that classify a vector or a map."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

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

    @torch.no_grad()
    def redraw(self, generator: Generator) -> None:
        """Begin anew, from the same distribution and in the same tensors: an optimiser or DDP holds on to them."""
        k, c = self.weight_KC.shape
        weight_KC = torch.randn(k, c, generator=generator, device=generator.device) * (2 / c) ** 0.5
        self.weight_KC.copy_(weight_KC)
        self.gamma.fill_(3.0)


def omega(kind: Literal["cosine", "linear"], channels: int, outputs: int) -> BowHead | nn.Linear:
    """The prediction layer by its name: equation 5, or the plain linear layer with a bias of its ablation."""
    if kind == "cosine":
        return BowHead(channels, outputs)
    if kind == "linear":
        return nn.Linear(channels, outputs)
    raise ValueError(f"student.head={kind!r}: known are cosine, linear")


class CosineHead(nn.Module):
    """Cosine classifier (Gidaris and Komodakis; Qi et al.): unit-norm features and weights, one learnable scale.

    f_NC -> logits_NK. Unlike in equation 5 the feature is normalised too, so the scale must begin large.
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.weight_KC = nn.Parameter(torch.randn(classes, channels) * (2 / channels) ** 0.5)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, f_NC: Tensor) -> Tensor:
        return self.scale * F.linear(F.normalize(f_NC, dim=1), F.normalize(self.weight_KC, dim=1))


class RotationHead(nn.Module):
    """One more residual block, pooling, and a linear layer over the four rotations. Feature map -> logits_N4."""

    def __init__(self, backbone: Backbone, layers: int) -> None:
        super().__init__()
        c = list(backbone.tap_channels.values())[-1]
        if isinstance(backbone, WideResNet):
            self.block: nn.Module = residual_block(c, c, 2, layers)
        else:
            from torchvision.models.resnet import Bottleneck  # as in resnet.py: not for wide ResNets

            self.block = nn.Sequential(*[Bottleneck(c, c // 4) for _ in range(layers)])
        self.classify = nn.Linear(c, 4)

    def forward(self, map_NCHW: Tensor) -> Tensor:
        return self.classify(global_pool(self.block(map_NCHW)))
