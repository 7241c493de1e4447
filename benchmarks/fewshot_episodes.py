"""Few-shot episodes, all at once, against a plain loop over them: the same episodes, the same result."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness import Result, compare
from bownet.config import Fewshot
from evaluation.episodes import Episodes, seeded_episodes
from evaluation.prototypes import episode_scorer

CLASSES, IMAGES, CHANNELS = 20, 100, 640  # images of each class


def measure(small: bool) -> list[Result]:
    """Both sides are given features and episodes. Drawing these is not measured: it is the same for both."""
    config = Fewshot(episodes=20 if small else 2000)
    labels_N = torch.arange(CLASSES).repeat(IMAGES)
    generator = torch.Generator().manual_seed(0)
    centre_CD = 0.15 * torch.randn(CLASSES, CHANNELS, generator=generator)
    x_ND = centre_CD[labels_N] + torch.randn(len(labels_N), CHANNELS, generator=generator)
    episodes = [seeded_episodes(labels_N, shots, config) for shots in config.shots]
    asked = len(config.shots) * config.episodes * config.ways * config.queries

    def ours() -> Tensor:
        score = episode_scorer(x_ND, labels_N, asked)
        return torch.stack([score(of_shots).mean() for of_shots in episodes])

    def plain(x_ND: Tensor = x_ND) -> Tensor:
        return torch.stack([plain_loop(x_ND, of_shots).mean() for of_shots in episodes])

    name = f"{len(config.shots)} x {config.episodes} few-shot episodes, {len(x_ND)} images x {CHANNELS}"
    exact = plain(x_ND.double())
    result = compare(f"{name}: plain loop / ours", ours, plain, 10, threads=1, repeats=3 if small else 7, seconds=0)
    apart = (ours() - exact).abs().max().item()
    return [
        result,
        Result(
            f"{name}: accuracy", 1 - apart, 1 - 1e-6, apart <= 1e-6, *means(ours(), exact), (1 - apart,) * 2, "part"
        ),
    ]


def means(*of_shots: Tensor) -> list[float]:
    return [accuracy.mean().item() for accuracy in of_shots]


def plain_loop(x_ND: Tensor, episodes: Episodes) -> Tensor:
    """Accuracy of each episode as one would write it down: normalise, average, normalise, compare."""
    ways = torch.arange(episodes.support_EWS.shape[1])[:, None]
    accuracy = []
    for support_WS, query_WQ in zip(*episodes, strict=True):
        prototype_WD = F.normalize(F.normalize(x_ND[support_WS], dim=2).mean(1), dim=1)
        score_WQV = F.normalize(x_ND[query_WQ], dim=2) @ prototype_WD.T
        accuracy.append((score_WQV.argmax(2) == ways).double().mean())
    return torch.stack(accuracy)
