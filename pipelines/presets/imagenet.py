"""ImageNet with ResNet-50: section 4.2 of the paper, judged on ImageNet, Places205, VOC07 and VOC07+12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bownet.config import (
    Data,
    Detection,
    Experiment,
    Linear,
    Optimiser,
    Student,
    Teacher,
    Transfer,
    Voc07Svm,
    Vocabulary,
)

TAPS = ("conv2", "conv3", "conv4", "conv5", "pool5")
VOC = "data/VOCdevkit"
_SHARED: dict[str, Any] = {"iterations_per_epoch": None, "batch": 256, "weight_decay": 1e-4}
SCHEDULE = Optimiser(**_SHARED, epochs=140, lr=0.03, drops=(60, 100, 130))


def _teacher(**settings: Any) -> Teacher:
    return Teacher(**{"arch": "resnet50", "head_layers": 1, "optimiser": SCHEDULE, **settings})


def _imagenet(name: str, **settings: Any) -> Experiment:
    """What all rows share: binary bags, the benchmark's classifiers on every layer, and the last network judged.

    Batch norm before each classifier is the benchmark's habit. The detector is torchvision's unless
    --detection.backend detectron2, which the paper used, is installed.
    """
    shared: dict[str, Any] = {
        "judged": "last",
        "evaluators": ("linear", "transfer", "voc07_svm", "detection"),
        "teacher": _teacher(),
        "student": Student(arch="resnet50", bow="binary", optimiser=SCHEDULE),
        "linear": Linear(
            features="online",
            taps=TAPS,
            pool="9k",
            epochs=28,
            batch=256,
            lr=0.01,
            drop_every=10,
            drop_factor=0.1,
            nesterov=True,
            weight_decay=1e-4,
            batch_norm=True,
        ),
        "transfer": Transfer(linear=Transfer().linear.model_copy(update={"taps": TAPS})),
        "voc07_svm": Voc07Svm(path=VOC, taps=("conv4", "conv5")),
        "detection": Detection(path=VOC),
    }
    data = Data(kind="imagenet", path="data/imagenet", image_size=224)
    return Experiment(name=f"imagenet/{name}", data=data, **shared | settings)


def supervised() -> Experiment:
    """ResNet-50 with labels: the supervised rows that the paper trained itself.

    The paper does not say how; these are the usual 90 epochs, rate 0.1, times 0.1 after 30 and 60. Not usual is what it
    sees: the whole image resized to 256, a random window of 224 and a flip, not random resized crops.

    Command: python pipelines/full.py imagenet/supervised
    Cost: not yet run.
    """
    return _imagenet(
        "supervised",
        rounds=0,
        evaluators=("linear", "transfer", "detection"),
        teacher=_teacher(kind="supervised", optimiser=Optimiser(**_SHARED, epochs=90, lr=0.1, drops=(30, 60))),
    )


def rotnet() -> Experiment:
    """RotNet with ResNet-50, the base teacher, with its own scores.

    The paper does not state its schedule; that of the students is taken.

    Command: python pipelines/full.py imagenet/rotnet
    Cost: not yet run.
    """
    return _imagenet("rotnet", rounds=0, evaluators=("linear", "transfer", "voc07_svm"))


def bownet_conv4() -> Experiment:
    """BoWNet conv4: two rounds with words of conv4, K=20000; ImageNet, Places205, VOC07 and VOC detection.

    Command: python pipelines/full.py imagenet/bownet-conv4
    Cost: not yet run.
    """
    return _imagenet("bownet-conv4", rounds=2, vocabulary=Vocabulary(size=20_000, tap="conv4", flip=True))


def bownet_conv5() -> Experiment:
    """BoWNet conv5: two rounds with words of conv5, K=20000; ImageNet, Places205, VOC07 and VOC detection.

    Command: python pipelines/full.py imagenet/bownet-conv5
    Cost: not yet run.
    """
    return _imagenet("bownet-conv5", rounds=2, vocabulary=Vocabulary(size=20_000, tap="conv5", flip=True))


PRESETS: dict[str, Callable[[], Experiment]] = {
    "imagenet/supervised": supervised,
    "imagenet/rotnet": rotnet,
    "imagenet/bownet-conv4": bownet_conv4,
    "imagenet/bownet-conv5": bownet_conv5,
}
