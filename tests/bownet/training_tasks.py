"""Tasks for tests of the training loop: small, without batch norm or chance, so that gradients can be compared."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from bownet.training import InMemory, Record

NOT_OF_TIME = {"time", "images_per_second", "input_wait", "peak_memory_gb"}


class Regression(nn.Module):
    """A small network that finds each image's target; the loss is a mean over the images."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        g = Generator().manual_seed(seed)
        self.hidden_HC = nn.Parameter(torch.randn(6, 12, generator=g) * 0.3)
        self.bias_H = nn.Parameter(torch.zeros(6))
        self.out_H = nn.Parameter(torch.randn(6, generator=g) * 0.3)

    def forward(self, images_NHWC: Tensor, y_N: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        x_NC = images_NHWC.flatten(1).float() / 255
        guess_N = torch.tanh(x_NC @ self.hidden_HC.T + self.bias_H) @ self.out_H
        return ((guess_N - y_N) ** 2).mean(), {"guess": guess_N.mean()}


class SelfTaught(Regression):
    """Renews its targets from its own weights every second epoch."""

    renewed_at: tuple[int, ...] = ()

    def renew(self, epoch: int, images: Iterable[Tensor]) -> NDArray[np.int64] | None:
        if epoch % 2:
            return None
        self.renewed_at += (epoch,)
        with torch.no_grad():
            scores = [x.flatten(1).float() @ self.hidden_HC.abs().sum(0) for x in images]
        ranks = torch.cat(scores).argsort().argsort().numpy()
        with torch.no_grad():
            self.out_H.mul_(0.5)  # as a task that gives itself a new head
        return ranks % 3


def pixels(n: int = 40) -> InMemory:
    return InMemory(np.random.default_rng(1).integers(256, size=(n, 2, 2, 3), dtype=np.uint8))


def numbers(n: int = 40) -> NDArray[np.int64]:
    return np.random.default_rng(2).integers(-2, 3, size=n)


def without_times(history: list[Record]) -> list[Record]:
    return [{name: value for name, value in record.items() if name not in NOT_OF_TIME} for record in history]


def assert_same_weights(a: nn.Module, b: nn.Module) -> None:
    for name, value in a.state_dict().items():
        assert torch.equal(value, b.state_dict()[name]), name
