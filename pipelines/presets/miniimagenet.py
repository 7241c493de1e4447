"""MiniImageNet with WRN-28-4: section 4.1 of the paper. Trained on 64 base classes, few-shot on 20 novel ones.

The paper trains on all 38,400 images of the base classes. Here every fifth of them is held out for the test of the
linear classifier, since the set has no test images of these classes (data.test_fraction): 30,720 are trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bownet.config import Data, Experiment, Optimiser, Round, Student, Teacher

ARCH = "wrn-28-4"
PAD = 8  # of RotNet's random crop, which the paper does not state; usual for these images


def _teacher(**settings: Any) -> Teacher:
    return Teacher(arch=ARCH, pad=PAD, **settings)


def _miniimagenet(name: str, **settings: Any) -> Experiment:
    """What all rows share: the schedule and the protocols of CIFAR-100, at 84 pixels, on 30,720 of 38,400 images."""
    shared: dict[str, Any] = {"teacher": _teacher(), "student": Student(arch=ARCH)}
    data = Data(kind="miniimagenet", path="data/mini-imagenet", image_size=84)
    return Experiment(name=f"miniimagenet/{name}", data=data, **shared | settings)


def supervised_cc() -> Experiment:
    """A cosine classifier with labels, the upper bound of the MiniImageNet table.

    The paper cites Gidaris and Komodakis for it and states no schedule; it is trained as all others are.

    Command: python pipelines/full.py miniimagenet/supervised-cc
    Cost: not yet run.
    """
    return _miniimagenet("supervised-cc", rounds=0, teacher=_teacher(kind="cosine_classifier"))


def rotnet() -> Experiment:
    """RotNet, the base teacher, with its own scores.

    Command: python pipelines/full.py miniimagenet/rotnet
    Cost: not yet run.
    """
    return _miniimagenet("rotnet", rounds=0)


def relloc() -> Experiment:
    """Relative location, the other base teacher, with its own scores.

    Command: python pipelines/full.py miniimagenet/relloc
    Cost: not yet run.
    """
    return _miniimagenet("relloc", rounds=0, teacher=_teacher(kind="relative_location"))


def deeper_clustering() -> Experiment:
    """Deeper Clustering from the same RotNet: 512 clusters, renewed every 3 epochs, with rotation prediction.

    Command: python pipelines/full.py miniimagenet/deeper-clustering
    Cost: not yet run.
    """
    return _miniimagenet(
        "deeper-clustering",
        rounds=0,
        teacher=_teacher(kind="deeper_clustering", rotnet_first=Optimiser(), optimiser=Optimiser(batch=512, drops=())),
    )


def bownet() -> Experiment:
    """BoWNet: words of a RotNet's last block, K=2048.

    Trained on 30,720 images, of the paper's 38,400: the others are held out for the test of the linear classifier.

    Command: python pipelines/full.py miniimagenet/bownet
    Cost: not yet run.
    """
    return _miniimagenet("bownet")


def bownet_x2() -> Experiment:
    """BoWNet x2: a second round, in which the first BoWNet is the teacher.

    Command: python pipelines/full.py miniimagenet/bownet-x2
    Cost: not yet run.
    """
    return _miniimagenet("bownet-x2", rounds=2)


def bownet_x3() -> Experiment:
    """BoWNet x3: three rounds; rows RotNet, BoWNet and BoWNet x2 come with it.

    Command: python pipelines/full.py miniimagenet/bownet-x3
    Cost: not yet run.
    """
    return _miniimagenet("bownet-x3", rounds=3)


def relloc_bownet() -> Experiment:
    """RelLoc -> BoWNet: words of a relative-location teacher.

    Command: python pipelines/full.py miniimagenet/relloc-bownet
    Cost: not yet run.
    """
    return _miniimagenet("relloc-bownet", teacher=_teacher(kind="relative_location"))


def random_bownet() -> Experiment:
    """Random -> BoWNet: an untrained teacher and four rounds, with words of block 1 (PCA), 2, 3 and 3.

    The paper does not say how many principal components it keeps; here it is half of the 64 channels.

    Command: python pipelines/full.py miniimagenet/random-bownet
    Cost: not yet run.
    """
    return _miniimagenet(
        "random-bownet",
        rounds=4,
        teacher=_teacher(kind="random"),
        per_round=(Round(tap="block1", pca=32), Round(tap="block2"), Round(tap="block3"), Round(tap="block3")),
    )


PRESETS: dict[str, Callable[[], Experiment]] = {
    "miniimagenet/supervised-cc": supervised_cc,
    "miniimagenet/rotnet": rotnet,
    "miniimagenet/relloc": relloc,
    "miniimagenet/deeper-clustering": deeper_clustering,
    "miniimagenet/bownet": bownet,
    "miniimagenet/bownet-x2": bownet_x2,
    "miniimagenet/bownet-x3": bownet_x3,
    "miniimagenet/relloc-bownet": relloc_bownet,
    "miniimagenet/random-bownet": random_bownet,
}
