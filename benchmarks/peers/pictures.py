"""Images in memory as PIL pictures with labels, as loaders of peers expect them; and our network for their loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

IMAGES = 50_000  # of CIFAR: an epoch of a peer, at whose end its loader starts anew, is as long as there


class Pictures(Dataset[tuple[Any, int]]):
    def __init__(self, labels: int, transform: Callable[[Any], Any] | None = None) -> None:
        rng = np.random.default_rng(0)
        self._images = rng.integers(256, size=(IMAGES, 32, 32, 3), dtype=np.uint8)
        self._labels, self.transform = rng.integers(labels, size=IMAGES), transform

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = Image.fromarray(self._images[index])
        return (self.transform(picture) if self.transform else picture), int(self._labels[index])


class Pooled(nn.Module):
    """One of our networks, as a module with one answer."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        from bownet.config import Net
        from bownet.nets.build import build_backbone

        self.net = build_backbone(Net(arch=arch), 0)
        self.num_features = self.net.tap_channels["pool"]

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x, ("pool",))["pool"]
