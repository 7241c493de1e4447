"""From an architecture's name to a freshly initialised backbone."""

from __future__ import annotations

import torch

from bownet.config import Net
from bownet.nets.resnet import ResNet
from bownet.nets.taps import Backbone
from bownet.nets.wide_resnet import WideResNet


def build_backbone(net: Net, seed: int) -> Backbone:
    """A new network; the same seed gives the same weights, and the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if net.arch.startswith("wrn-"):
            depth, widen = map(int, net.arch.split("-")[1:])
            return WideResNet(depth, widen).to(memory_format=torch.channels_last)
        return ResNet(int(net.arch.removeprefix("resnet"))).to(memory_format=torch.channels_last)
