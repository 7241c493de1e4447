"""Settings of networks and of how they are trained."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from bownet.config.base import PositiveInt, Settings


class Optimiser(Settings):
    """SGD and its schedule."""

    epochs: PositiveInt = 30
    """Epochs of training."""
    iterations_per_epoch: Annotated[int, Field(ge=1)] | None = 2000
    """Batches that count as one epoch; None means one pass over the images."""
    batch: Annotated[int, Field(ge=2, le=65536)] = 128
    """Images per step, over all workers together."""
    lr: Annotated[float, Field(gt=0, le=100)] = 0.1
    """Initial learning rate."""
    schedule: Literal["step", "cosine"] = "step"
    """`step` multiplies the rate by `drop_factor` at `drops`; `cosine` lowers it to zero."""
    drops: tuple[Annotated[int, Field(ge=1)], ...] = (12, 24)
    """Epochs after which the rate is multiplied by `drop_factor`."""
    drop_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """What a drop multiplies the learning rate by."""
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs over which the rate rises linearly from near zero."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    nesterov: bool = True
    """Nesterov's form of momentum."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 5e-4
    """L2 penalty."""
    decay: Literal["all", "weights"] = "all"
    """What is penalised: all parameters, or weight matrices only (no biases, no batch norm, no scales)."""
    lr_batch: Annotated[int, Field(ge=1)] | None = None
    """The batch that `lr` is meant for: with another one it is scaled in proportion. None takes it as it is."""
    clip: Annotated[float, Field(gt=0)] | None = None
    """Gradients longer than this are shortened to it."""
    accumulate: Annotated[int, Field(ge=1, le=1024)] = 1
    """Parts in which a batch is computed one after the other, to save memory; batch norm sees a part at a time."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay per step of a moving average of the weights, which is what is kept in the end; 0 keeps the weights."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of activations. bfloat16 is faster on GPUs and on CPUs that have it, slower on others; float16 is for GPUs."""
    compile: bool = False
    """torch.compile: a slow start, then faster steps."""
    sync_batch_norm: bool = False
    """Batch norm over the batch of all workers (GPUs only), for small parts per worker."""

    @model_validator(mode="after")
    def _drops_within_epochs(self) -> Optimiser:
        if self.schedule == "step" and list(self.drops) != sorted(set(self.drops)):
            raise ValueError(f"drops={self.drops}: list epochs in rising order, each once")
        if self.schedule == "step" and self.drops and self.drops[-1] >= self.epochs:
            raise ValueError(f"drops={self.drops}: the last drop must come before the end, epochs={self.epochs}")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs={self.warmup_epochs}: must be below epochs={self.epochs}")
        if 2 * self.accumulate > self.batch:
            raise ValueError(f"accumulate={self.accumulate}: leaves less than 2 images of batch={self.batch} in a part")
        return self

    @property
    def base_lr(self) -> float:
        """`lr` for this batch."""
        return self.lr * (self.batch / self.lr_batch if self.lr_batch else 1.0)


def known_arch(arch: str) -> str:
    """The same name, if it is one of an architecture."""
    match = re.fullmatch(r"wrn-(\d+)-(\d+)", arch)
    if match and int(match[1]) >= 10 and (int(match[1]) - 4) % 6 == 0 and 1 <= int(match[2]) <= 64:
        return arch
    if arch in ("resnet18", "resnet50"):
        return arch
    raise ValueError("known are wrn-<6n+4>-<width> (wrn-10-2, wrn-28-10), resnet18, resnet50")


Arch = Annotated[str, AfterValidator(known_arch)]


class Net(Settings):
    """Architecture of a feature extractor."""

    arch: Arch = "wrn-28-10"
    """`wrn-<depth>-<width>` for small images, or resnet18, resnet50."""
