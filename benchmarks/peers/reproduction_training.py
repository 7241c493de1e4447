"""The public reproduction's own function that trains BoWNet, on the CPU: its loader, its teacher, its vocabulary.

python -m benchmarks.peers.reproduction_training CHECKOUT STEPS BATCH WORDS
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers.pictures import IMAGES
from benchmarks.peers.turns import Every


class Pictures:
    """What its loader asks of a data set."""

    split, mean_pix, std_pix = "train", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)

    def __init__(self) -> None:
        self._images = np.random.default_rng(0).integers(256, size=(IMAGES, 32, 32, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._images[index], 0


class InTurns:
    """Its loader, epoch after epoch."""

    def __init__(self, loader: Any, every: Every) -> None:
        self._loader, self._every = loader, every

    def __call__(self, epoch: int = 0) -> Iterator[Any]:
        while True:
            for batch in self._loader(epoch):
                self._every.step()
                yield batch
            epoch += 1

    def __len__(self) -> int:
        return len(self._loader)


def main(checkout: str, steps: int, batch: int, words: int) -> None:
    sys.path.insert(0, checkout)
    every = Every(steps)
    for kind in (torch.Tensor, torch.nn.Module):  # there is no other way to have it on a CPU
        kind.cuda = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]
    import kmeans_cluster_and_bownet_training as peer  # type: ignore[import-not-found]
    from dataloader import DataLoader  # type: ignore[import-not-found]
    from model import BowNet  # type: ignore[import-not-found]

    peer.device = torch.device("cpu")
    loader = DataLoader(dataset=Pictures(), batch_size=batch, mode="bow", num_workers=4, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocabulary.npy"
        np.save(file, np.random.default_rng(0).random((words, 256), np.float32))
        vocabulary = peer.initialize_kmeans_from_vocab(file, words, num_features=256)
        student = BowNet(num_classes=words, bow_training=True)
        path = f"{folder}/checkpoint.pt"
        peer.train_bow_reconstruction(
            vocabulary, InTurns(loader, every), loader, BowNet(num_classes=4), student, path, words, 8
        )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
