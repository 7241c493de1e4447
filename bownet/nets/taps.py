"""Named features: a backbone runs its stages in order and returns the outputs that were asked for, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn


class Backbone(nn.Module):
    """A convnet Φ as a list of named stages; pixels in [0, 1] go in, `{tap: features}` comes out.

    It stops after the last tap asked for. The last tap of every backbone is its globally pooled feature vector.
    Input statistics are part of the net, so that weights always travel with the scaling they were trained with.
    """

    tap_channels: dict[str, int]
    tap_strides: dict[str, int]  # pixels of the image per position of the map; 0 for a vector
    input_mean: Tensor
    input_std: Tensor
    key: str | None  # of the artifact of a store whose weights these are, where that is known

    def __init__(self) -> None:
        super().__init__()
        self.key = None
        self.register_buffer("input_mean", torch.full((3,), 0.5))
        self.register_buffer("input_std", torch.full((3,), 0.25))

    def stages(self) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
        raise AssertionError(f"{type(self).__name__} must list its stages")

    @property
    def taps(self) -> tuple[str, ...]:
        return tuple(self.tap_channels)

    @property
    def pooled(self) -> str:
        """The name of the global feature, Φ(x) of the paper."""
        return self.taps[-1]

    def set_input_statistics(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.input_mean.copy_(torch.tensor(mean))
        self.input_std.copy_(torch.tensor(std))

    def check_taps(self, taps: Sequence[str]) -> None:
        for tap in taps:
            if tap not in self.tap_channels:
                raise ValueError(f"tap={tap!r}: {type(self).__name__} has {', '.join(self.taps)}")

    def forward(self, x_NCHW: Tensor, taps: Sequence[str]) -> dict[str, Tensor]:
        self.check_taps(taps)
        found: dict[str, Tensor] = {}
        h = (x_NCHW - self.input_mean.view(3, 1, 1)) / self.input_std.view(3, 1, 1)
        h = h.contiguous(memory_format=torch.channels_last)
        for name, stage in self.stages():
            h = stage(h)
            if name in taps:
                found[name] = h
            if len(found) == len(set(taps)):
                break
        return found


def global_pool(x_NCHW: Tensor) -> Tensor:
    return x_NCHW.mean((2, 3))


def freeze(net: nn.Module) -> nn.Module:
    """Turn a trained net into a teacher: eval mode, no gradients."""
    return net.eval().requires_grad_(False)
