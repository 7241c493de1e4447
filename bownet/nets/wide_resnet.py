"""Wide ResNet WRN-d-k for small images: blocks at full, half and quarter resolution, taps `block1..block3, pool`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch.nn.functional as F
from torch import Tensor, nn

from bownet.nets.taps import Backbone, global_pool


def _conv3x3(c_in: int, c_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, 3, stride, padding=1, bias=False)


class ResidualLayer(nn.Module):
    """Pre-activation residual layer. `activated` says that the input has been through BN and ReLU already."""

    def __init__(self, c_in: int, c_out: int, stride: int, activated: bool) -> None:
        super().__init__()
        self.norm1 = nn.Identity() if activated else nn.BatchNorm2d(c_in)
        self.activated = activated
        self.conv1 = _conv3x3(c_in, c_out, stride)
        self.norm2 = nn.BatchNorm2d(c_out)
        self.conv2 = _conv3x3(c_out, c_out)
        changes = stride != 1 or c_in != c_out
        self.shortcut = nn.Conv2d(c_in, c_out, 1, stride, bias=False) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        a = x if self.activated else F.relu(self.norm1(x), inplace=True)
        h = self.conv2(F.relu(self.norm2(self.conv1(a)), inplace=True))
        return h.add_(x if isinstance(self.shortcut, nn.Identity) else self.shortcut(a))  # nobody else needs h


def residual_block(c_in: int, c_out: int, stride: int, layers: int, activated: bool = True) -> nn.Sequential:
    """`layers` residual layers, then the BN+ReLU that every feature passes before it is used.

    A WRN has this BN+ReLU at the start of the next block; it is the same function, owned by the block whose output
    it makes into a feature.
    """
    first = ResidualLayer(c_in, c_out, stride, activated)
    more = [ResidualLayer(c_out, c_out, 1, activated=False) for _ in range(layers - 1)]
    return nn.Sequential(first, *more, nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class WideResNet(Backbone):
    """WRN-d-k of Zagoruyko and Komodakis: (d-4)/6 layers per block, 16k, 32k and 64k channels, strides 1, 2, 2."""

    def __init__(self, depth: int, widen: int) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth={depth}: a WRN has 6n+4 layers, use 10, 16, 22, 28, 40")
        layers = (depth - 4) // 6
        c1, c2, c3 = 16 * widen, 32 * widen, 64 * widen
        self.stem = _conv3x3(3, 16)
        self.block1 = residual_block(16, c1, 1, layers, activated=False)
        self.block2 = residual_block(c1, c2, 2, layers)
        self.block3 = residual_block(c2, c3, 2, layers)
        self.tap_channels = {"block1": c1, "block2": c2, "block3": c3, "pool": c3}
        self.tap_strides = {"block1": 1, "block2": 2, "block3": 4, "pool": 0}
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages(self) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
        yield "stem", self.stem
        yield "block1", self.block1
        yield "block2", self.block2
        yield "block3", self.block3
        yield "pool", global_pool
