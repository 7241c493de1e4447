"""What both back ends give: a module that answers losses in training and detections in evaluation mode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from evaluation.detection.views import View


@dataclass(frozen=True)
class Found:
    """What was found in an image, best first, in the image's own pixels."""

    boxes_D4: Tensor  # float32: x0, y0, x1, y1 as in Objects
    labels_D: Tensor  # int64, from 0
    scores_D: Tensor  # float32


class Detector(nn.Module, ABC):
    """A detector whose `forward` takes views of the images of this worker.

    `new` names the parameters that did not come from the backbone; all others did.
    """

    new: tuple[str, ...] = ()

    def forward(self, views: Sequence[View], seed: int) -> dict[str, Tensor]:
        """Losses by name, to be summed. Anchors and regions are sampled from the seed, not from the global state."""
        device = next(self.parameters()).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            return self.losses(views)

    @abstractmethod
    def losses(self, views: Sequence[View]) -> dict[str, Tensor]: ...

    @abstractmethod
    def detect(self, views: Sequence[View]) -> list[Found]: ...
