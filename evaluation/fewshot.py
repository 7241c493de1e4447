"""Few-shot episodes (appendix C.3): cosine prototypes on frozen features, mean accuracy with its 95% interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bownet.config import Fewshot

_CHUNK = 100  # episodes at a time


def fewshot_accuracy(features_ND: Tensor, labels_N: Tensor, config: Fewshot) -> Mapping[str, float]:
    """`1shot`, `1shot_ci95`, ... in percent. Two models with the same labels and seed see the same episodes."""
    metrics: dict[str, float] = {}
    for shots, accuracy_E in fewshot_accuracies(features_ND, labels_N, config).items():
        metrics[f"{shots}shot"] = 100 * accuracy_E.mean().item()
        metrics[f"{shots}shot_ci95"] = 100 * interval(accuracy_E)
    return metrics


def fewshot_accuracies(features_ND: Tensor, labels_N: Tensor, config: Fewshot) -> dict[int, Tensor]:
    """The accuracy of every episode [E], as a fraction, for each number of shots."""
    check_enough_images(torch.unique(labels_N, return_counts=True)[1].tolist(), config)
    unit_ND = F.normalize(features_ND.double(), dim=1)
    accuracies: dict[int, Tensor] = {}
    for shots in config.shots:
        generator = torch.Generator().manual_seed(config.seed * 1000 + shots)
        accuracies[shots] = torch.cat(
            [
                episode_accuracy(unit_ND, *draw_episodes(labels_N, count, shots, config, generator))
                for count in _chunks(config.episodes)
            ]
        )
    return accuracies


class Difference(NamedTuple):
    """Of two models' accuracies on the same episodes, in points."""

    mean: float
    ci95: float


def compare_paired(a_E: Tensor, b_E: Tensor) -> Difference:
    """How much better a is than b on the same episodes: what an episode is hard by cancels out."""
    return Difference(100 * (a_E - b_E).mean().item(), 100 * interval(a_E - b_E))


def interval(value_E: Tensor) -> float:
    """Half of the 95% interval of the mean."""
    return 1.96 * value_E.std().item() / len(value_E) ** 0.5 if len(value_E) > 1 else 0.0


def check_enough_images(images_per_class: list[int], config: Fewshot) -> None:
    need = max(config.shots) + config.queries
    if len(images_per_class) < config.ways:
        raise ValueError(f"fewshot.ways={config.ways}: the set has {len(images_per_class)} classes, use fewer ways")
    if min(images_per_class) < need:
        raise ValueError(
            f"fewshot.shots={config.shots}: {max(config.shots)} shots and {config.queries} queries need {need} images "
            f"of each class, the smallest has {min(images_per_class)}; use fewer shots or more images"
        )


def draw_episodes(
    labels_N: Tensor, count: int, shots: int, config: Fewshot, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Image numbers of support [E, ways, shots] and queries [E, ways, queries], distinct within an episode."""
    classes = torch.unique(labels_N)
    members = [torch.nonzero(labels_N == c)[:, 0] for c in classes]
    size_C = torch.tensor([len(m) for m in members])
    member_CM = torch.nn.utils.rnn.pad_sequence(members, batch_first=True)
    chosen_EW = torch.rand(count, len(classes), generator=generator).argsort(1)[:, : config.ways]
    key_EWM = torch.rand(count, config.ways, member_CM.shape[1], generator=generator)
    key_EWM[torch.arange(member_CM.shape[1]) >= size_C[chosen_EW][..., None]] = 2.0  # padding is never drawn
    drawn = key_EWM.topk(shots + config.queries, dim=2, largest=False, sorted=True).indices
    image_EWI = member_CM[chosen_EW].gather(2, drawn)
    return image_EWI[..., :shots], image_EWI[..., shots:]


def episode_accuracy(unit_ND: Tensor, support_EWS: Tensor, query_EWQ: Tensor) -> Tensor:
    """Share of queries whose most similar prototype is that of their class, for each episode."""
    prototype_EWD = F.normalize(unit_ND[support_EWS].mean(2), dim=2)
    score_EWQV = torch.einsum("ewqd,evd->ewqv", unit_ND[query_EWQ], prototype_EWD)
    right = score_EWQV.argmax(3) == torch.arange(prototype_EWD.shape[1])[None, :, None]
    return right.double().mean((1, 2))


def _chunks(total: int) -> list[int]:
    return [min(_CHUNK, total - start) for start in range(0, total, _CHUNK)]
