"""Relative location (RelLoc, Doersch et al.; a base of section 4.1): where does a patch lie, seen from the centre's?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.images.augment import to_float
from bownet.images.relative_location import POSITIONS, location_patches
from bownet.nets.taps import Backbone

HIDDEN = 1280


class RelativeLocationTask(nn.Module):
    """All eight neighbours of each image. Patches are flipped, made grey and jittered as `location_patches` does."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        channels = backbone.tap_channels[backbone.pooled]
        self.head = nn.Sequential(nn.Linear(2 * channels, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, POSITIONS))

    def forward(
        self, images_NHWC: Tensor, targets: Tensor | None, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        patches = location_patches(to_float(images_NHWC), generator)
        # Patches are standardised, and the backbone standardises what it gets with its input statistics. Told in the
        # units of pixels they come out of that as they are now, and the net keeps the statistics that images need.
        mean, std = self.backbone.input_mean.view(3, 1, 1), self.backbone.input_std.view(3, 1, 1)
        x = patches.flatten(0, 1) * std + mean
        feature_NMC = self.backbone(x, (self.backbone.pooled,))[self.backbone.pooled].unflatten(0, patches.shape[:2])
        centre_NJC, neighbour_NJC = feature_NMC[:, :1].expand_as(feature_NMC[:, 1:]), feature_NMC[:, 1:]
        logits = self.head(torch.cat([neighbour_NJC, centre_NJC], 2)).flatten(0, 1)
        position = torch.arange(POSITIONS, device=logits.device).repeat(len(patches))
        return F.cross_entropy(logits, position), {"accuracy": (logits.argmax(1) == position).float().mean()}
