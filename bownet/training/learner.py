"""One step of SGD with all that an optimiser's settings ask for: a part of a batch goes in, the weights move.

Gradients are those of the mean over the batch of all workers, in whatever parts it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from bownet.config import Optimiser
from bownet.training.average import Average

GRADIENT_NORM = "gradient_norm"
COMPILER = "inductor"


def learning_rate(config: Optimiser, epoch: float) -> float:
    """The rate at a point in time, in epochs; fractions count for warm-up and cosine."""
    if epoch < config.warmup_epochs:
        return config.base_lr * (epoch + 1e-3) / config.warmup_epochs
    if config.schedule == "cosine":
        done = (epoch - config.warmup_epochs) / (config.epochs - config.warmup_epochs)
        return config.base_lr * 0.5 * (1 + math.cos(math.pi * done))
    return config.base_lr * config.drop_factor ** sum(epoch >= drop for drop in config.drops)


def low_precision(config: Optimiser, device: torch.device) -> torch.dtype | None:
    """What activations are computed in where it is not float32; float16 needs a GPU."""
    if config.precision == "bfloat16":
        return torch.bfloat16
    return torch.float16 if config.precision == "float16" and device.type == "cuda" else None


@runtime_checkable
class ScalesRates(Protocol):
    """A task whose parts learn at different rates: factors of the rate, by the name of a part such as `head`."""

    lr_scale: Mapping[str, float]


def parameter_groups(task: nn.Module, config: Optimiser) -> list[dict[str, Any]]:
    """All parameters in one group, but for those without decay and those with a rate of their own.

    Without decay are those with fewer than two dimensions, where only weights have it.
    """
    scales = task.lr_scale if isinstance(task, ScalesRates) else {}
    unknown = [part for part in scales if not any(_is_in(name, part) for name, _ in task.named_parameters())]
    if unknown:
        raise ValueError(f"lr_scale={unknown[0]!r}: {type(task).__name__} has no part of this name")
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in task.named_parameters():
        scale = next((scales[part] for part in scales if _is_in(name, part)), 1.0)
        groups.setdefault((scale, config.decay == "all" or parameter.ndim >= 2), []).append(parameter)
    ordered = sorted(groups.items(), key=lambda item: not item[0][1])  # those with decay first
    return [
        {"params": parameters, "lr_scale": scale} | ({} if decays else {"weight_decay": 0.0})
        for (scale, decays), parameters in ordered
    ]


def _is_in(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


class Learner:
    """A task with its optimiser: momentum, the scale of float16 gradients and the average of the weights."""

    def __init__(self, task: nn.Module, config: Optimiser) -> None:
        device = next(task.parameters()).device
        self._config, self._device = config, device
        self._dtype = low_precision(config, device)
        scaled = self._dtype == torch.float16
        self._optimiser = torch.optim.SGD(
            parameter_groups(task, config),
            lr=config.base_lr,
            momentum=config.momentum,
            nesterov=config.nesterov and config.momentum > 0,
            weight_decay=config.weight_decay,
            fused=True if scaled else None,  # any other form waits for the device, to learn of an overflow
        )
        if scaled and config.momentum:  # the fused one leaves it uninitialised where the first step overflows
            for p in task.parameters():
                self._optimiser.state[p]["momentum_buffer"] = torch.zeros_like(p)
        self._scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self._parameters = [p for p in task.parameters() if p.requires_grad]
        self.average = Average(task, config.ema) if config.ema else None

    def connect(self, task: nn.Module, parallel: Callable[[nn.Module], nn.Module]) -> None:
        """Join the other workers. Comes after a checkpoint is loaded: joining makes all weights those of rank 0."""
        together = parallel(task)
        self._alone: Callable[[], AbstractContextManager[Any]] = getattr(together, "no_sync", nullcontext)
        self._forward: Any = torch.compile(together, backend=COMPILER) if self._config.compile else together

    def step(
        self, x: Tensor, y: Tensor | None, generator: torch.Generator, lr: float, share: float
    ) -> dict[str, Tensor]:
        """Move the weights by this worker's part of a batch; returns its loss and metrics, on the device.

        `share` is what the part has of the batch, times the number of workers: they are averaged with equal weights.
        """
        for group in self._optimiser.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)
        self._optimiser.zero_grad(set_to_none=True)
        xs = x.tensor_split(self._config.accumulate)
        ys = [None] * len(xs) if y is None else y.tensor_split(self._config.accumulate)
        values: dict[str, Tensor] = {}
        for k, (x_part, y_part) in enumerate(zip(xs, ys, strict=True)):
            weight = share * len(x_part) / len(x)
            with self._alone() if k + 1 < len(xs) else nullcontext():
                with torch.autocast(self._device.type, self._dtype, enabled=self._dtype is not None):
                    loss, metrics = self._forward(x_part, y_part, generator)
                self._scaler.scale(_times(loss, weight)).backward()
            for name, value in {"loss": loss, **metrics}.items():
                part = _times(value.detach().float(), weight)
                values[name] = values[name] + part if name in values else part
        values[GRADIENT_NORM] = self._clipped()
        self._scaler.step(self._optimiser)
        self._scaler.update()
        if self.average:
            self.average.update()
        return values

    def _clipped(self) -> Tensor:
        """The length of the gradient before it was shortened to `clip`."""
        self._scaler.unscale_(self._optimiser)
        with_gradient = [p for p in self._parameters if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in with_gradient if p.grad is not None])
        if self._config.clip is not None:
            nn.utils.clip_grads_with_norm_(with_gradient, self._config.clip, norm)
        if self._scaler.is_enabled():  # a step whose gradients overflow is left out; that is how its scale is found
            norm = torch.where(norm.isfinite(), norm, 0.0)
        return norm

    def state(self) -> dict[str, Any]:
        return {
            "optimiser": self._optimiser.state_dict(),
            "scaler": self._scaler.state_dict(),
            "average": self.average.state() if self.average else None,
        }

    def load(self, optimiser: dict[str, Any], scaler: dict[str, Any], average: dict[str, Any] | None) -> None:
        self._optimiser.load_state_dict(optimiser)
        if self._scaler.is_enabled() and scaler:
            self._scaler.load_state_dict(scaler)
        if self.average and average:
            self.average.load(average)


def _times(value: Tensor, weight: float) -> Tensor:
    return value if weight == 1 else value * weight
