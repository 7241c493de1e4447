"""Few-shot classification (appendix C.3): cosine prototypes on frozen features, mean accuracy with its 95% interval.

Episodes come from a seed, so that two models see the same ones and are compared episode by episode.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bownet.config import Fewshot
from evaluation.episodes import check_enough_images, seeded_episodes
from evaluation.prototypes import episode_scorer
from evaluation.score import Score


class Difference(NamedTuple):
    """Of two models' accuracies on the same episodes, in points."""

    mean: float
    ci95: float


def fewshot_accuracies(features_ND: Tensor, labels_N: Tensor, config: Fewshot) -> dict[int, Tensor]:
    """The accuracy of every episode [E], as a fraction, for each number of shots."""
    check_enough_images(torch.unique(labels_N, return_counts=True)[1].tolist(), config)
    asked = len(config.shots) * config.episodes * config.ways * config.queries
    accuracy = episode_scorer(features_ND, labels_N, asked)
    return {shots: accuracy(seeded_episodes(labels_N, shots, config)) for shots in config.shots}


def fewshot_score(accuracies: dict[int, Tensor]) -> Score:
    """`1shot`, `1shot_ci95`, ... in percent, of the accuracies of every episode."""
    metrics: dict[str, float] = {}
    for shots, accuracy_E in accuracies.items():
        metrics[f"{shots}shot"] = 100 * accuracy_E.mean().item()
        metrics[f"{shots}shot_ci95"] = 100 * interval(accuracy_E)
    return Score(metrics)


def compare_paired(a_E: Tensor, b_E: Tensor) -> Difference:
    """How much better a is than b on the same episodes: what an episode is hard by cancels out."""
    if a_E.shape != b_E.shape:
        raise ValueError(f"{len(a_E)} and {len(b_E)} episodes: only results on the same episodes can be paired")
    return Difference(100 * (a_E - b_E).mean().item(), 100 * interval(a_E - b_E))


def interval(value_E: Tensor) -> float:
    """Half of the 95% interval of the mean."""
    return 1.96 * value_E.std().item() / len(value_E) ** 0.5 if len(value_E) > 1 else 0.0
