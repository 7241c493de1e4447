"""Few-shot episodes on cached features, both sides: ours all at once, or obow's own function for each episode.

python -m benchmarks.peers.episodes FILE [CHECKOUT]      FILE as `write` makes it
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers.turns import Turns


def ours(saved: dict[str, Any]) -> list[float]:
    from evaluation.episodes import Episodes
    from evaluation.prototypes import episode_scorer

    episodes = [Episodes(*one) for one in saved["episodes"]]
    asked = sum(one.query_EWQ.numel() for one in episodes)
    score = episode_scorer(saved["features"], saved["labels"], asked)
    return [100 * score(one).mean().item() for one in episodes]


def of_obow(saved: dict[str, Any]) -> list[float]:
    """As it does with images: here these are features of one pixel, and the extractor hands them on."""
    from obow import fewshot  # type: ignore[import-not-found]

    maps = saved["features"][:, :, None, None]
    return [100 * _mean(fewshot, maps, support, query) for support, query in saved["episodes"]]


def _mean(fewshot: Any, maps: Tensor, support_EWS: Tensor, query_EWQ: Tensor) -> float:
    ways, shots, queries = *support_EWS.shape[1:], query_EWQ.shape[2]
    train, test = (torch.arange(ways).repeat_interleave(n)[None] for n in (shots, queries))
    one_hot = torch.nn.functional.one_hot(train, ways).float()
    accuracy = 0.0
    for support, query in zip(support_EWS, query_EWQ, strict=True):
        _, found = fewshot.fewshot_classification(
            feature_extractor=_as_it_is,
            images_train=maps[support.flatten()][None],
            labels_train=train,
            labels_train_1hot=one_hot,
            images_test=maps[query.flatten()][None],
            labels_test=test,
            feature_levels=None,
        )
        accuracy += found.item() / 100
    return accuracy / len(support_EWS)


def _as_it_is(x: Tensor, levels: Sequence[str] | None) -> Tensor:
    return x


def main(file: Path, checkout: str | None) -> None:
    turns = Turns()
    saved = torch.load(file, weights_only=True)
    if checkout:
        sys.path.insert(0, checkout)
    turns.play(lambda: (of_obow if checkout else ours)(saved))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
