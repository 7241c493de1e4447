"""A training by solo-learn: its transforms of one crop, its loader, its base method with Lightning's loop.

python -m benchmarks.peers.solo_training CHECKOUT ARCH STEPS BATCH WORDS
"""

from __future__ import annotations

import os
import sys
from typing import Any

from torch import nn

from benchmarks.peers.pictures import Pictures, Pooled
from benchmarks.peers.turns import Every

ONE_CROP = {  # its settings for CIFAR without blur, which the paper's perturbation does not have
    "rrc": {"enabled": True, "crop_min_scale": 0.08, "crop_max_scale": 1.0},
    "color_jitter": {"prob": 0.8, "brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2},
    "grayscale": {"prob": 0.2},
    "gaussian_blur": {"prob": 0.0},
    "solarization": {"prob": 0.0},
    "equalization": {"prob": 0.0},
    "horizontal_flip": {"prob": 0.5},
    "crop_size": 32,
    "num_crops": 1,
}


def main(checkout: str, arch: str, steps: int, batch: int, words: int) -> None:
    every = Every(steps)
    sys.path.insert(0, checkout)
    from lightning.pytorch import Trainer  # type: ignore[import-not-found]
    from omegaconf import OmegaConf  # type: ignore[import-not-found]
    from solo.data import pretrain_dataloader as data  # type: ignore[import-not-found]
    from solo.methods.base import BaseMethod  # type: ignore[import-not-found]

    class OneView(BaseMethod):  # type: ignore[misc]
        """What all of its methods share, with a head that predicts words."""

        def __init__(self, settings: Any) -> None:
            super().__init__(settings)
            self.head = nn.Linear(self.features_dim, words)

        @property
        def learnable_params(self) -> list[dict[str, Any]]:
            return [*super().learnable_params, {"name": "head", "params": self.head.parameters()}]

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            every.step()
            out = super().training_step(batch, batch_idx)
            return out["loss"] + nn.functional.cross_entropy(self.head(out["feats"][0]), batch[-1])

    BaseMethod._BACKBONES["ours"] = lambda method, **_: Pooled(arch)
    settings = {
        "method": "one view",
        "backbone": {"name": "ours"},
        "data": {"dataset": "custom", "num_classes": words, "num_large_crops": 1, "num_small_crops": 0},
        "optimizer": {
            "name": "sgd",
            "batch_size": batch,
            "lr": 0.1,
            "weight_decay": 5e-4,
            "classifier_lr": 0.1,
            "kwargs": {"momentum": 0.9},
        },
        "scheduler": {"name": "none"},
        "max_epochs": 1000,
    }
    crop = OmegaConf.create(ONE_CROP)
    pipeline = data.NCropAugmentation(data.build_transform_pipeline("cifar10", crop), 1)
    dataset = data.dataset_with_index(Pictures)(words, data.FullTransformPipeline([pipeline]))
    loader = data.prepare_dataloader(dataset, batch_size=batch, num_workers=os.cpu_count() or 1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=1000, accelerator="cpu", **quiet)
    trainer.fit(OneView(OmegaConf.create(settings)), loader)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
