"""A linear classifier on cached features, both sides: ours, or obow's own solver over its own loader.

python -m benchmarks.peers.linear IMAGES EPOCHS [CHECKOUT]
"""

from __future__ import annotations

import logging
import sys
import tempfile
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.linear_probe import CHANNELS, CLASSES, TEST, made, percent
from benchmarks.peers.turns import Turns
from bownet.config import Linear

BATCH = 256  # obow's


def ours(x: Tensor, y: Tensor, config: Linear) -> Any:
    from evaluation.linear import fit_linear

    return fit_linear(x, y, CLASSES, config, seed=0)


def of_obow(x: Tensor, y: Tensor, config: Linear) -> nn.Linear:
    """Its cache of features, its loader with its four workers, its model and solver."""
    from collections import defaultdict

    from obow import classification, datasets, utils  # type: ignore[import-not-found]

    utils.accuracy = _accuracy  # its own fails with this PyTorch
    cache = datasets.PrecacheFeaturesDataset.__new__(datasets.PrecacheFeaturesDataset)  # features are there already
    cache.labels, cache.all_features, cache.random_view = y.tolist(), x[:, :, None, None].numpy(), False
    cache._num_view, cache._central_view = 1, 0
    loader = torch.utils.data.DataLoader(cache, batch_size=BATCH, shuffle=True, num_workers=4)
    options = {"num_channels": CHANNELS, "num_classes": CLASSES, "pool_type": "global_avg"}
    model = classification.FrozenFeaturesLinearClassifier(nn.Sequential(), options)
    model.linear_classifier.layers._modules.pop("pooling")  # as its precache_feature_extractor does
    sgd = {"optim_type": "sgd", "lr": config.lr, "momentum": config.momentum, "weight_decay": config.weight_decay}
    drops = [*range(config.drop_every, config.epochs, config.drop_every)]
    schedule = {"lr_schedule_type": "step_lr", "lr_schedule": drops, "lr_decay": config.drop_factor}
    with tempfile.TemporaryDirectory() as folder:
        solver = classification.SupervisedClassifierSolver(
            model, folder, None, {**sgd, "nesterov": False, "num_epochs": config.epochs, **schedule}
        )
        solver.initialize_optimizer()
        for epoch in range(config.epochs):
            solver.adjust_learning_rate(epoch)
            told = defaultdict(utils.AverageMeter)
            for batch in loader:
                solver.train_step(batch, told)
    last: nn.Linear = model.linear_classifier.layers.prediction_layer
    return last


def _accuracy(output: Tensor, target: Tensor, topk: tuple[int, ...]) -> list[Tensor]:
    hits = output.topk(max(topk)).indices == target[:, None]
    return [100 * hits[:, :k].any(1).float().mean() for k in topk]


def main(images: int, epochs: int, checkout: str | None) -> None:
    turns = Turns()
    logging.disable(logging.INFO)
    if checkout:
        sys.path.insert(0, checkout)
    config = Linear(epochs=epochs, batch=BATCH)
    generator = torch.Generator().manual_seed(0)
    centre_CD = 0.35 * torch.randn(CLASSES, CHANNELS, generator=generator)
    (x, y), (test_x, test_y) = (made(n, centre_CD, generator) for n in (images, TEST))

    def work() -> float:
        if checkout:
            return percent(of_obow(x, y, config), test_x, test_y)
        from evaluation.linear import tally

        return float(tally(ours(x, y, config), test_x, test_y).metrics()["top1"])

    turns.play(work)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
