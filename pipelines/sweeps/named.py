"""Sweeps by name: the paper's ablation tables, and the findings study. An experiment goes in, its points come out."""

from __future__ import annotations

import re
from collections.abc import Callable

from bownet.config import Experiment
from pipelines.presets import PRESETS
from pipelines.scale import at_scale
from pipelines.sweeps.space import Point, changed, label_of

BASE = Point("base", {})
PERTURBED = Point("predict y(x~)", {"student.target": "perturbed"})
LINEAR = Point("linear Omega", {"student.head": "linear"})
BINARY = Point("binary", {"student.bow": "binary"})
NO_CUTMIX = Point("no CutMix", {"student.cutmix": False})
PYRAMID = Point("pyramid", {"student.pyramid": True})


def vocabulary_size(exp: Experiment) -> list[Point]:
    """Impact of K: a quarter, a half, once and twice the experiment's, which is 512 to 4096 for cifar100/bownet.

    For imagenet-small/ the sizes of the paper's table, 2048, 8192 and 20000, at the experiment's scale.
    """
    k = exp.vocabulary.size
    if exp.name.startswith("imagenet-small/"):
        rows = [at_scale(PRESETS[f"imagenet-small/bownet-conv4{end}"](), exp.scale) for end in ("", "-8192", "-20000")]
        return [_plain({"vocabulary.size": row.vocabulary.size}) for row in rows]
    return [_plain({"vocabulary.size": size}) for size in dict.fromkeys(max(2, k * n // 4) for n in (1, 2, 4, 8))]


def ablations(exp: Experiment) -> list[Point]:
    """Additional ablations: words of the perturbed image, a linear Ω, the other kind of bags."""
    bags = BINARY if exp.student.bow == "count" else Point("histogram", {"student.bow": "count"})
    return [BASE, PERTURBED, LINEAR, bags]


def cutmix_and_pyramid(exp: Experiment) -> list[Point]:
    """Without CutMix, or with it where the experiment has none, and with a spatial pyramid."""
    return [BASE, NO_CUTMIX if exp.student.cutmix else Point("CutMix", {"student.cutmix": True}), PYRAMID]


def base_convnet(exp: Experiment) -> list[Point]:
    """Impact of the base convnet: RotNet, relative location, or none with four rounds."""
    if not exp.rounds or exp.per_round:
        said = "rounds=0" if not exp.rounds else f"entries of per_round={len(exp.per_round)}"
        raise ValueError(
            f"{said}: base-convnet compares students of different teachers; use a preset such as cifar100/bownet"
        )
    return [Point("RotNet", {"teacher.kind": "rotation"}), _relative_location(exp), _random(exp)]


def layer(exp: Experiment) -> list[Point]:
    """Which layer's words: the last three of the network, whose maps have inner places."""
    taps = ("conv3", "conv4", "conv5") if exp.teacher.arch.startswith("resnet") else ("block1", "block2", "block3")
    return [_plain({"vocabulary.tap": tap}) for tap in taps]


def findings(exp: Experiment) -> list[Point]:
    """Everything that the twelve claims compare (pipelines/findings.py), with a RotNet and one BoWNet as their base."""
    _refuse_other_bases(exp)
    points = _compared(exp)
    made = {BASE.label: changed(exp, {})}
    for point in points[1:]:
        one = changed(exp, point.settings)
        if same := next((label for label, other in made.items() if other == one), None):
            raise ValueError(
                f"preset={exp.name}: {point.label!r} of the findings would be the same experiment as {same!r}, and a "
                "claim would compare it with itself; change that setting of the preset, or use cifar10/small"
            )
        made[point.label] = one
    return points


def _refuse_other_bases(exp: Experiment) -> None:
    wanted: dict[str, tuple[object, object]] = {"rounds": (exp.rounds, 1)}
    wanted |= {"entries of per_round": (len(exp.per_round), 0)}
    wanted |= {"judged": (exp.judged, "all"), "teacher.kind": (exp.teacher.kind, "rotation")}
    for name, (has, must) in wanted.items():
        if has != must:
            raise ValueError(f"{name}={has}: the findings compare one BoWNet and its RotNet, both judged; use {must}")


def _compared(exp: Experiment) -> list[Point]:
    k = exp.vocabulary.size
    constant = {**_as_long_as_a_student(exp), "schedule": "step", "drops": ()}
    clustering = {
        "rounds": 0,
        "teacher.kind": "deeper_clustering",
        "teacher.clusters": max(2, min(512, k // 4)),
        "teacher.renew_every": max(1, min(3, exp.student.optimiser.epochs // 3)),  # the paper's: 3 of 30
        "teacher.rotnet_first": exp.teacher.optimiser.model_dump(),
        "teacher.optimiser": constant,
    }
    middle = "conv4" if exp.teacher.arch.startswith("resnet") else "block2"
    return [  # the longest first, and last what waits for others: trials at the same time rarely need the same stage
        BASE,
        _random(exp),
        _relative_location(exp),
        Point("Deeper Clustering", clustering),
        *(NO_CUTMIX, PYRAMID, PERTURBED, LINEAR, BINARY),
        Point("a quarter of the words", {"vocabulary.size": max(2, k // 4)}),
        Point("twice the words", {"vocabulary.size": 2 * k}),
        Point("words of a middle layer", {"vocabulary.tap": middle}),
        Point("two rounds", {"rounds": 2}),
    ]


def _plain(settings: dict[str, object]) -> Point:
    return Point(label_of(settings), settings)


def _relative_location(exp: Experiment) -> Point:
    """Trained as long as a student where RotNet, which sees every image four times, is trained for less."""
    settings: dict[str, object] = {"teacher.kind": "relative_location"}
    if exp.teacher.optimiser.epochs < exp.student.optimiser.epochs:
        settings["teacher.optimiser"] = _as_long_as_a_student(exp)
    return Point("RelLoc", settings)


def _as_long_as_a_student(exp: Experiment) -> dict[str, object]:
    """As many epochs and steps, at the rate of a teacher: that of a student is one for bags of words."""
    return {**exp.student.optimiser.model_dump(), "lr": exp.teacher.optimiser.lr}


def _random(exp: Experiment) -> Point:
    """An untrained teacher and four rounds; PCA keeps half of the first block's channels."""
    wide = re.fullmatch(r"wrn-\d+-(\d+)", exp.teacher.arch)
    half = 8 * int(wide[1]) if wide else 32
    taps = ("block1", "block2", "block3", "block3") if wide else ("conv2", "conv3", "conv4", "conv4")
    rounds = [{"tap": tap, "pca": half if i == 0 else None} for i, tap in enumerate(taps)]
    return Point("random, 4 rounds", {"teacher.kind": "random", "rounds": 4, "per_round": rounds})


NAMED: dict[str, Callable[[Experiment], list[Point]]] = {
    "vocabulary-size": vocabulary_size,
    "ablations": ablations,
    "cutmix-and-pyramid": cutmix_and_pyramid,
    "base-convnet": base_convnet,
    "layer": layer,
    "findings": findings,
}
