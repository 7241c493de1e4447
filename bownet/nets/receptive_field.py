"""What a position of a feature map sees of the image: found by asking the network, whatever its layers are."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from bownet.nets.taps import Backbone


@dataclass(frozen=True)
class ReceptiveField:
    """Pixels that can change a position in the middle of a large image, and where position 0 is centred."""

    side: int
    stride: int
    offset: float  # of the centre of position 0 from the image's corner, in pixels

    def centre(self, position: int) -> float:
        return self.offset + position * self.stride


@torch.no_grad()
def _positive(backbone: Backbone) -> Backbone:
    """A copy in which nothing cancels and nothing is cut off: every pixel that can count does."""
    net = copy.deepcopy(backbone).cpu().double().eval()
    net.set_input_statistics((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.fill_(1.0 / module.weight[0].numel())
        elif isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.zero_()
            module.running_var.fill_(1.0)
            module.weight.fill_(1.0)
            module.bias.fill_(0.0)
        elif isinstance(module, nn.MaxPool2d):
            module.forward = nn.AvgPool2d(module.kernel_size, module.stride, module.padding).forward  # type: ignore[method-assign]
    return net


def receptive_field(backbone: Backbone, tap: str) -> ReceptiveField:
    """Of a tap that is a map."""
    stride = backbone.tap_strides[tap]
    if not stride:
        raise ValueError(f"tap={tap!r}: sees the whole image; name one that is a map")
    net, side = _positive(backbone), 32 * stride
    while True:
        image = torch.ones(1, 3, side, side, dtype=torch.float64, requires_grad=True)
        middle = side // stride // 2
        net(image, (tap,))[tap][0, :, middle, middle].sum().backward()
        assert image.grad is not None
        seen = image.grad[0].abs().sum(0).sum(0).nonzero()[:, 0]
        first, last = int(seen[0]), int(seen[-1])
        if first > 0 and last < side - 1:
            return ReceptiveField(last - first + 1, stride, (first + last + 1) / 2 - middle * stride)
        side *= 2
