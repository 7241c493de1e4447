"""A training as lightly's guides write it: its transform of one view, its data set, a loader, a plain loop.

python -m benchmarks.peers.lightly_training ARCH STEPS BATCH WORDS
"""

from __future__ import annotations

import os
import sys

import torch
from torch import nn

from benchmarks.peers.pictures import Pictures, Pooled
from benchmarks.peers.turns import Every


def main(arch: str, steps: int, batch: int, words: int) -> None:
    every = Every(steps)
    from lightly.data import LightlyDataset  # type: ignore[import-not-found]
    from lightly.transforms.multi_view_transform import MultiViewTransform  # type: ignore[import-not-found]
    from lightly.transforms.simclr_transform import SimCLRViewTransform  # type: ignore[import-not-found]

    view = SimCLRViewTransform(input_size=32, gaussian_blur=0.0)  # the paper's perturbation has no blur
    dataset = LightlyDataset.from_torch_dataset(Pictures(words), transform=MultiViewTransform([view]))
    workers = os.cpu_count()
    loader = torch.utils.data.DataLoader(dataset, batch, shuffle=True, drop_last=True, num_workers=workers or 1)
    backbone = Pooled(arch)
    model = nn.Sequential(backbone, nn.Linear(backbone.num_features, words))
    criterion = nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    while True:
        for views, labels, _ in loader:
            every.step()
            loss = criterion(model(views[0]), labels)
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
