"""CIFAR-100 with WRN-28-10: section 4.1 and appendix B.1 of the paper. Settings default to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bownet.config import Data, Experiment, Optimiser, Student, Teacher, Vocabulary

WIDE_RESNET = Optimiser(epochs=200, iterations_per_epoch=None, drops=(60, 120, 160), drop_factor=0.2)


def _cifar100(name: str, **settings: Any) -> Experiment:
    """What all rows share: 30 epochs of 2000 batches of 128, few-shot episodes and a linear classifier."""
    return Experiment(name=f"cifar100/{name}", data=Data(kind="cifar100", path="data/cifar100"), **settings)


def supervised() -> Experiment:
    """WRN-28-10 with labels: the upper bound of the CIFAR-100 table, which the paper quotes.

    Trained as its authors did (Zagoruyko and Komodakis): 200 epochs, rate 0.1, times 0.2 after 60, 120 and 160; without
    dropout. The score is that of a linear classifier on its frozen feature, as for all others.

    Command: python pipelines/full.py cifar100/supervised
    Cost: not yet run.
    """
    return _cifar100("supervised", rounds=0, teacher=Teacher(kind="supervised", optimiser=WIDE_RESNET))


def rotnet() -> Experiment:
    """RotNet, the base teacher, with its own scores.

    Command: python pipelines/full.py cifar100/rotnet
    Cost: not yet run.
    """
    return _cifar100("rotnet", rounds=0)


def deeper_clustering() -> Experiment:
    """Deeper Clustering from the same RotNet: 512 clusters, renewed every 3 epochs, with rotation prediction.

    Command: python pipelines/full.py cifar100/deeper-clustering
    Cost: not yet run.
    """
    return _cifar100(
        "deeper-clustering",
        rounds=0,
        teacher=Teacher(kind="deeper_clustering", rotnet_first=Optimiser(), optimiser=Optimiser(batch=512, drops=())),
    )


def bownet() -> Experiment:
    """BoWNet: words of a RotNet's last block, K=2048.

    Command: python pipelines/full.py cifar100/bownet
    Cost: not yet run.
    """
    return _cifar100("bownet")


def bownet_x2() -> Experiment:
    """BoWNet x2: a second round, in which the first BoWNet is the teacher.

    Command: python pipelines/full.py cifar100/bownet-x2
    Cost: not yet run.
    """
    return _cifar100("bownet-x2", rounds=2)


def bownet_x3() -> Experiment:
    """BoWNet x3: three rounds; rows RotNet, BoWNet and BoWNet x2 come with it.

    Command: python pipelines/full.py cifar100/bownet-x3
    Cost: not yet run.
    """
    return _cifar100("bownet-x3", rounds=3)


def bownet_no_cutmix() -> Experiment:
    """BoWNet without CutMix.

    Command: python pipelines/full.py cifar100/bownet-no-cutmix
    Cost: not yet run.
    """
    return _cifar100("bownet-no-cutmix", student=Student(cutmix=False))


def sp_bownet() -> Experiment:
    """Sp-BoWNet: bags of the whole image and of its four quarters.

    Command: python pipelines/full.py cifar100/sp-bownet
    Cost: not yet run.
    """
    return _cifar100("sp-bownet", student=Student(pyramid=True))


def bownet_perturbed_target() -> Experiment:
    """Ablation: BoWNet that predicts the words of the perturbed image.

    Command: python pipelines/full.py cifar100/bownet-perturbed-target
    Cost: not yet run.
    """
    return _cifar100("bownet-perturbed-target", student=Student(target="perturbed"))


def bownet_linear_omega() -> Experiment:
    """Ablation: BoWNet with a plain linear layer as Ω.

    Command: python pipelines/full.py cifar100/bownet-linear-omega
    Cost: not yet run.
    """
    return _cifar100("bownet-linear-omega", student=Student(head="linear"))


def bownet_binary() -> Experiment:
    """Ablation: BoWNet with binary bags of words.

    Command: python pipelines/full.py cifar100/bownet-binary
    Cost: not yet run.
    """
    return _cifar100("bownet-binary", student=Student(bow="binary"))


def vocabulary(size: int) -> Callable[[], Experiment]:
    """The preset of one row of the table on the vocabulary's size."""

    def make() -> Experiment:
        return _cifar100(f"vocabulary-{size}", vocabulary=Vocabulary(size=size), evaluators=("linear",))

    make.__doc__ = f"""Impact of the vocabulary's size: BoWNet with K={size}.

    The paper's figures are of "an initial version with less aggressive augmentation", which it does not describe;
    this is cifar100/bownet with another K.

    Command: python pipelines/full.py cifar100/vocabulary-{size}
    Cost: not yet run.
    """
    return make


PRESETS: dict[str, Callable[[], Experiment]] = {
    "cifar100/supervised": supervised,
    "cifar100/rotnet": rotnet,
    "cifar100/deeper-clustering": deeper_clustering,
    "cifar100/bownet": bownet,
    "cifar100/bownet-x2": bownet_x2,
    "cifar100/bownet-x3": bownet_x3,
    "cifar100/bownet-no-cutmix": bownet_no_cutmix,
    "cifar100/sp-bownet": sp_bownet,
    "cifar100/bownet-perturbed-target": bownet_perturbed_target,
    "cifar100/bownet-linear-omega": bownet_linear_omega,
    "cifar100/bownet-binary": bownet_binary,
    **{f"cifar100/vocabulary-{size}": vocabulary(size) for size in (512, 1024, 2048, 4096)},
}
