"""ResNet-18 and ResNet-50 (v1, torchvision's modules and names) with taps `conv2..conv5, pool5`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from bownet.nets.taps import Backbone, global_pool


class ResNet(Backbone):
    """Keeps torchvision's parameter names (conv1, bn1, layer1..layer4), so that weights go in and out unchanged."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        from torchvision import models  # here: it takes a second and 100 MB, and wide ResNets do without

        builders = {18: models.resnet18, 50: models.resnet50}
        if depth not in builders:
            raise ValueError(f"depth={depth}: known ResNets are {', '.join(map(str, builders))}")
        net = builders[depth](weights=None)
        self.conv1, self.bn1, self.relu, self.maxpool = net.conv1, net.bn1, net.relu, net.maxpool
        self.layer1, self.layer2, self.layer3, self.layer4 = net.layer1, net.layer2, net.layer3, net.layer4
        width = 256 if depth == 50 else 64
        self.tap_channels = {f"conv{i + 2}": width << i for i in range(4)} | {"pool5": width * 8}
        self.tap_strides = {f"conv{i + 2}": 4 << i for i in range(4)} | {"pool5": 0}

    def stages(self) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
        yield "conv1", lambda x: self.maxpool(self.relu(self.bn1(self.conv1(x))))
        yield "conv2", self.layer1
        yield "conv3", self.layer2
        yield "conv4", self.layer3
        yield "conv5", self.layer4
        yield "pool5", global_pool
