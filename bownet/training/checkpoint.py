"""A checkpoint: all that a training run needs to take the very steps that it would have taken without a stop."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Record = dict[str, float]


@dataclass
class Running:
    """The epoch that has begun: its steps so far, and sums over them for the epoch's record."""

    steps: int = 0
    images: int = 0
    seconds: float = 0.0
    waited: float = 0.0  # of these, for input
    names: list[str] = field(default_factory=list)
    sums_WM: Tensor | None = None  # of each worker's metrics


@dataclass
class Checkpoint:
    task: dict[str, Tensor]
    optimiser: dict[str, Any]
    history: list[Record]  # of the epochs that are complete
    scaler: dict[str, Any] = field(default_factory=dict)
    average: dict[str, Any] | None = None
    running: dict[str, Any] = field(default_factory=dict)  # a Running; empty between two epochs
    start: float | None = None  # loss of the first step
    targets: Tensor | None = None  # where the task has renewed them

    def pack(self) -> bytes:
        buffer = io.BytesIO()
        torch.save(vars(self), buffer)
        return buffer.getvalue()


def unpack(data: bytes) -> Checkpoint:
    return Checkpoint(**torch.load(io.BytesIO(data), weights_only=True, map_location="cpu"))


def how_far(data: bytes) -> tuple[int, int]:
    """Complete epochs and steps of the next one."""
    checkpoint = unpack(data)
    return len(checkpoint.history), Running(**checkpoint.running).steps
