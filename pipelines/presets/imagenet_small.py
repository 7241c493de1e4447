"""A fifth of ImageNet with ResNet-18: appendix B.2 of the paper, which layer's words and how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bownet.config import Data, Experiment, Linear, Optimiser, Student, Teacher, Vocabulary

SCHEDULE = Optimiser(epochs=48, iterations_per_epoch=None, batch=200, drops=(15, 30, 45))


def _small(name: str, **settings: Any) -> Experiment:
    """What all rows share: one round, binary bags, and a classifier on 512x4x4 values of the last block.

    The paper states no batch for that classifier; the benchmark's 256 is taken. It is trained on the same 20% of the
    images.
    """
    shared: dict[str, Any] = {
        "judged": "last",
        "evaluators": ("linear",),
        "teacher": Teacher(arch="resnet18", head_layers=1, optimiser=SCHEDULE),
        "student": Student(arch="resnet18", bow="binary", optimiser=SCHEDULE),
        "linear": Linear(
            features="online", taps=("conv5",), pool="4x4", epochs=60, batch=256, drop_every=20, drop_factor=0.1
        ),
    }
    data = Data(kind="imagenet", path="data/imagenet", image_size=224, fraction=0.2)
    return Experiment(name=f"imagenet-small/{name}", data=data, **shared | settings)


def rotnet() -> Experiment:
    """RotNet with ResNet-18 on 20% of ImageNet, the base teacher of the small-scale experiments.

    Command: python pipelines/full.py imagenet-small/rotnet
    Cost: not yet run.
    """
    return _small("rotnet", rounds=0)


def bownet_conv3() -> Experiment:
    """BoWNet on 20% of ImageNet with words of conv3, K=2048.

    Command: python pipelines/full.py imagenet-small/bownet-conv3
    Cost: not yet run.
    """
    return _small("bownet-conv3", vocabulary=Vocabulary(size=2048, tap="conv3", flip=True))


def bownet_conv4() -> Experiment:
    """BoWNet on 20% of ImageNet with words of conv4, K=2048.

    Command: python pipelines/full.py imagenet-small/bownet-conv4
    Cost: not yet run.
    """
    return _small("bownet-conv4", vocabulary=Vocabulary(size=2048, tap="conv4", flip=True))


def bownet_conv5() -> Experiment:
    """BoWNet on 20% of ImageNet with words of conv5, K=2048.

    Command: python pipelines/full.py imagenet-small/bownet-conv5
    Cost: not yet run.
    """
    return _small("bownet-conv5", vocabulary=Vocabulary(size=2048, tap="conv5", flip=True))


def bownet_conv4_8192() -> Experiment:
    """BoWNet on 20% of ImageNet with words of conv4, K=8192.

    Command: python pipelines/full.py imagenet-small/bownet-conv4-8192
    Cost: not yet run.
    """
    return _small("bownet-conv4-8192", vocabulary=Vocabulary(size=8192, tap="conv4", flip=True))


def bownet_conv4_20000() -> Experiment:
    """BoWNet on 20% of ImageNet with words of conv4, K=20000.

    Command: python pipelines/full.py imagenet-small/bownet-conv4-20000
    Cost: not yet run.
    """
    return _small("bownet-conv4-20000", vocabulary=Vocabulary(size=20_000, tap="conv4", flip=True))


PRESETS: dict[str, Callable[[], Experiment]] = {
    "imagenet-small/rotnet": rotnet,
    "imagenet-small/bownet-conv3": bownet_conv3,
    "imagenet-small/bownet-conv4": bownet_conv4,
    "imagenet-small/bownet-conv5": bownet_conv5,
    "imagenet-small/bownet-conv4-8192": bownet_conv4_8192,
    "imagenet-small/bownet-conv4-20000": bownet_conv4_20000,
}
