"""A backbone's weights into a detector, key by key: what is missing, of another shape or left over is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

COUNTER = "num_batches_tracked"  # of batches, by batch norm: says nothing of the function, and frozen norms have none


def load_verified(
    detector: nn.Module, weights: Mapping[str, Tensor], is_backbone: Callable[[str], bool]
) -> tuple[str, ...]:
    """Copy `weights`, named as the detector names them; returns the names of parameters that stay as initialised.

    `is_backbone` says of a name in the detector whether it must come from the backbone.
    """
    state = {name: value for name, value in detector.state_dict().items() if not name.endswith(COUNTER)}
    given = {name: value for name, value in weights.items() if not name.endswith(COUNTER)}
    for name in given:
        if name not in state:
            raise ValueError(f"{name}: the backbone has it and the detector does not; use a resnet50 of this program")
    for name, value in state.items():
        if not is_backbone(name):
            continue
        if name not in given:
            raise ValueError(f"{name}: the detector needs it and the backbone does not have it; it would stay random")
        if given[name].shape != value.shape:
            here, there = tuple(value.shape), tuple(given[name].shape)
            raise ValueError(f"{name}: has shape {there} in the backbone and {here} in the detector; use the same arch")
    with torch.no_grad():
        for name, value in given.items():
            state[name].copy_(value)
    return tuple(name for name, _ in detector.named_parameters() if name not in given)
