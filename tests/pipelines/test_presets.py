"""Every preset against the paper's settings, written down here from its text and from nowhere else."""

from typing import Any

import pytest

from bownet.config import Experiment
from pipelines.presets import PRESETS
from pipelines.tracking import flatten

# Section 4.1: "SGD for 30 epochs of 2000 batch iterations and batch size 128. The learning rate is initialized with 0.1
# and multiplied by 0.1 after 12 and 24 epochs. The weight decay is 5e-4."
SCHEDULE = {"epochs": 30, "iterations_per_epoch": 2000, "batch": 128, "lr": 0.1, "schedule": "step"}
SCHEDULE |= {"drops": [12, 24], "drop_factor": 0.1, "weight_decay": 5e-4, "momentum": 0.9}
# Section 4.1: "SGD for 60 epochs using a learning rate of 0.1 that is multiplied by 0.3 every 10 epochs"
LINEAR = {"linear.features": "cached", "linear.epochs": 60, "linear.lr": 0.1, "linear.drop_every": 10}
LINEAR |= {"linear.drop_factor": 0.3, "linear.weight_decay": 1e-3, "linear.batch_norm": False}
FEWSHOT = {"fewshot.shots": [1, 5, 10, 50], "fewshot.ways": 5, "fewshot.queries": 15, "fewshot.episodes": 2000}


def optimiser(of: str, schedule: dict[str, Any]) -> dict[str, Any]:
    return {f"{of}.optimiser.{name}": value for name, value in schedule.items()}


PLAIN = {
    "scale": "full",
    "judged": "all",
    "teacher.kind": "rotation",
    "teacher.head_layers": 4,
    "vocabulary.size": 2048,
    "vocabulary.tap": "block3",
    "vocabulary.pca": None,
    "vocabulary.flip": False,
    "student.bow": "count",
    "student.drop_border": True,
    "student.cutmix": True,
    "student.head": "cosine",
    "student.pyramid": False,
    "student.target": "clean",
    "student.perturbation.jitter_probability": 0.8,
    "student.perturbation.brightness": 0.4,
    "student.perturbation.contrast": 0.4,
    "student.perturbation.saturation": 0.4,
    "student.perturbation.hue": 0.1,
    "student.perturbation.grey_probability": 0.2,
    "evaluators": ["linear", "fewshot"],
    "per_round": [],
    "rounds": 1,
    **optimiser("teacher", SCHEDULE),
    **optimiser("student", SCHEDULE),
    **LINEAR,
    **FEWSHOT,
}
CIFAR100 = PLAIN | {"teacher.arch": "wrn-28-10", "student.arch": "wrn-28-10", "data.kind": "cifar100"}
CIFAR100 |= {"data.image_size": 32, "data.path": "data/cifar100", "data.train": None, "data.fraction": 1.0}
MINI = PLAIN | {"teacher.arch": "wrn-28-4", "student.arch": "wrn-28-4", "data.kind": "miniimagenet"}
MINI |= {"data.image_size": 84, "data.path": "data/mini-imagenet"}
# Footnote of section 4.1: 30 epochs, clusters every 3, constant rate 0.1, 2000 iterations of 512, 512 clusters
CLUSTERING = {
    "rounds": 0,
    "teacher.kind": "deeper_clustering",
    "teacher.clusters": 512,
    "teacher.renew_every": 3,
    "teacher.optimiser.batch": 512,
    "teacher.optimiser.drops": [],
    **{f"teacher.rotnet_first.{name}": value for name, value in SCHEDULE.items()},
}
# Section 4.2: 140 epochs, 0.03 times 0.1 after 60, 100 and 130, batch 256, weight decay 1e-4, 2 rounds, K=20000
IMAGENET_SCHEDULE = {"epochs": 140, "iterations_per_epoch": None, "batch": 256, "lr": 0.03, "drops": [60, 100, 130]}
IMAGENET_SCHEDULE |= {"drop_factor": 0.1, "weight_decay": 1e-4}
TAPS = ["conv2", "conv3", "conv4", "conv5", "pool5"]
BENCHMARK = {"features": "online", "taps": TAPS, "pool": "9k", "batch": 256, "lr": 0.01, "drop_factor": 0.1}
BENCHMARK |= {"weight_decay": 1e-4, "nesterov": True}
IMAGENET = {
    "scale": "full",
    "judged": "last",
    "rounds": 2,
    "teacher.kind": "rotation",
    "teacher.head_layers": 1,
    "teacher.arch": "resnet50",
    "student.arch": "resnet50",
    "student.bow": "binary",
    "student.cutmix": True,
    "student.head": "cosine",
    "student.drop_border": True,
    "vocabulary.flip": True,
    "vocabulary.size": 20_000,
    "data.kind": "imagenet",
    "data.image_size": 224,
    "data.fraction": 1.0,
    "evaluators": ["linear", "transfer", "voc07_svm", "detection"],
    **optimiser("teacher", IMAGENET_SCHEDULE),
    **optimiser("student", IMAGENET_SCHEDULE),
    **{f"linear.{name}": value for name, value in BENCHMARK.items()},
    "linear.epochs": 28,
    "linear.drop_every": 10,
    "transfer.data.kind": "places205",
    "transfer.data.image_size": 224,
    **{f"transfer.linear.{name}": value for name, value in BENCHMARK.items()},
    "transfer.linear.epochs": 14,
    "transfer.linear.drop_every": 5,
    "voc07_svm.taps": ["conv4", "conv5"],
    "voc07_svm.costs": "goyal",
    "voc07_svm.folds": 3,
    "detection.train": "trainval07+12",
    "detection.steps": 25_000,
    "detection.drops": [17_000],
    "detection.batch": 16,
    "detection.lr": 0.02,
    "detection.warmup": 1000,
    "detection.freeze": 2,
    "detection.trials": 3,
}
# Appendix B.2: 48 epochs, 0.1 times 0.1 after 15, 30 and 45, batch 200, 5e-4; 60 epochs, 0.1 times 0.1 every 20, 1e-3
SMALL_SCHEDULE = {"epochs": 48, "iterations_per_epoch": None, "batch": 200, "lr": 0.1, "drops": [15, 30, 45]}
SMALL_SCHEDULE |= {"drop_factor": 0.1, "weight_decay": 5e-4}
SMALL = {
    "scale": "full",
    "rounds": 1,
    "teacher.kind": "rotation",
    "teacher.head_layers": 1,
    "teacher.arch": "resnet18",
    "student.arch": "resnet18",
    "student.bow": "binary",
    "vocabulary.flip": True,
    "vocabulary.size": 2048,
    "data.kind": "imagenet",
    "data.fraction": 0.2,
    "data.image_size": 224,
    "evaluators": ["linear"],
    **optimiser("teacher", SMALL_SCHEDULE),
    **optimiser("student", SMALL_SCHEDULE),
    "linear.features": "online",
    "linear.taps": ["conv5"],
    "linear.pool": "4x4",
    "linear.epochs": 60,
    "linear.lr": 0.1,
    "linear.drop_every": 20,
    "linear.drop_factor": 0.1,
    "linear.weight_decay": 1e-3,
}
WIDE = {"epochs": 200, "iterations_per_epoch": None, "batch": 128, "lr": 0.1, "drops": [60, 120, 160]}
WIDE |= {"drop_factor": 0.2, "weight_decay": 5e-4, "nesterov": True}
RANDOM_ROUNDS = [{"tap": "block1", "pca": 32}, *({"tap": tap, "pca": None} for tap in ("block2", "block3", "block3"))]

PAPER: dict[str, dict[str, Any]] = {
    "cifar100/supervised": CIFAR100 | {"rounds": 0, "teacher.kind": "supervised"} | optimiser("teacher", WIDE),
    "cifar100/rotnet": CIFAR100 | {"rounds": 0},
    "cifar100/deeper-clustering": CIFAR100 | CLUSTERING,
    "cifar100/bownet": CIFAR100,
    "cifar100/bownet-x2": CIFAR100 | {"rounds": 2},
    "cifar100/bownet-x3": CIFAR100 | {"rounds": 3},
    "cifar100/bownet-no-cutmix": CIFAR100 | {"student.cutmix": False},
    "cifar100/sp-bownet": CIFAR100 | {"student.pyramid": True},
    "cifar100/bownet-perturbed-target": CIFAR100 | {"student.target": "perturbed"},
    "cifar100/bownet-linear-omega": CIFAR100 | {"student.head": "linear"},
    "cifar100/bownet-binary": CIFAR100 | {"student.bow": "binary"},
    **{
        f"cifar100/vocabulary-{k}": CIFAR100 | {"vocabulary.size": k, "evaluators": ["linear"]}
        for k in (512, 1024, 2048, 4096)
    },
    "miniimagenet/supervised-cc": MINI | {"rounds": 0, "teacher.kind": "cosine_classifier"},
    "miniimagenet/rotnet": MINI | {"rounds": 0},
    "miniimagenet/relloc": MINI | {"rounds": 0, "teacher.kind": "relative_location"},
    "miniimagenet/deeper-clustering": MINI | CLUSTERING,
    "miniimagenet/bownet": MINI,
    "miniimagenet/bownet-x2": MINI | {"rounds": 2},
    "miniimagenet/bownet-x3": MINI | {"rounds": 3},
    "miniimagenet/relloc-bownet": MINI | {"teacher.kind": "relative_location"},
    "miniimagenet/random-bownet": MINI | {"teacher.kind": "random", "rounds": 4, "per_round": RANDOM_ROUNDS},
    "imagenet/supervised": {
        name: value for name, value in IMAGENET.items() if not name.startswith(("teacher.optimiser", "vocabulary."))
    }
    | {"rounds": 0, "teacher.kind": "supervised", "evaluators": ["linear", "transfer", "detection"]},
    "imagenet/rotnet": {name: value for name, value in IMAGENET.items() if not name.startswith("vocabulary.")}
    | {"rounds": 0, "evaluators": ["linear", "transfer", "voc07_svm"]},
    "imagenet/bownet-conv4": IMAGENET | {"vocabulary.tap": "conv4"},
    "imagenet/bownet-conv5": IMAGENET | {"vocabulary.tap": "conv5"},
    "imagenet-small/rotnet": {name: value for name, value in SMALL.items() if not name.startswith("vocabulary.")}
    | {"rounds": 0},
    **{f"imagenet-small/bownet-{tap}": SMALL | {"vocabulary.tap": tap} for tap in ("conv3", "conv4", "conv5")},
    **{
        f"imagenet-small/bownet-conv4-{k}": SMALL | {"vocabulary.tap": "conv4", "vocabulary.size": k}
        for k in (8192, 20_000)
    },
}


@pytest.mark.parametrize("name", PAPER)
def test_a_preset_is_the_papers_setting(name: str) -> None:
    made = flatten(PRESETS[name]().model_dump(mode="json"))
    stated = {setting: str(value) for setting, value in PAPER[name].items()}
    assert {setting: made[setting] for setting in stated} == stated


def test_there_are_no_other_presets_but_the_small_ones() -> None:
    assert PRESETS.keys() - PAPER.keys() == {"demo", "smoke", "cifar10/small"}


def test_the_base_of_the_findings_study() -> None:
    """As PROTOCOLS of the plain program: 10k images, WRN-10-2, K=512, RotNet 6 epochs, BoWNet 25 epochs with CutMix."""
    exp: Experiment = PRESETS["cifar10/small"]()
    assert (exp.scale, exp.data.train, exp.teacher.arch, exp.student.arch) == ("small", 10_000, "wrn-10-2", "wrn-10-2")
    assert (exp.vocabulary.size, exp.teacher.optimiser.epochs, exp.student.optimiser.epochs) == (512, 6, 25)
    assert exp.student.cutmix


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_states_command_and_cost(name: str) -> None:
    text = PRESETS[name].__doc__ or ""
    assert f"full.py {name}" in text
    assert "Command: " in text
    assert "Cost: " in text or name == "smoke"
