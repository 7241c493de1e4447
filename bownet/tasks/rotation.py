"""RotNet (appendix C.1): tell by which of four angles an image was turned. Every image is shown in all four."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.images.augment import four_rotations, pad_crop_flip, to_float
from bownet.nets.heads import RotationHead
from bownet.nets.taps import Backbone


class RotationTask(nn.Module):
    def __init__(self, backbone: Backbone, head_layers: int, pad: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.tap = backbone.taps[-2]  # the last feature map, before pooling
        self.head = RotationHead(backbone, head_layers)
        self.pad = pad

    def forward(self, images_NHWC: Tensor, targets: None, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        x = four_rotations(pad_crop_flip(to_float(images_NHWC), self.pad, generator))
        logits = self.head(self.backbone(x, (self.tap,))[self.tap])
        angle = torch.arange(4, device=x.device).repeat_interleave(len(images_NHWC))
        loss = F.cross_entropy(logits, angle)
        return loss, {"accuracy": (logits.argmax(1) == angle).float().mean()}
