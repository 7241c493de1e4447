"""Reduced scale: a preset goes in, one of the same structure that a CPU finishes comes out, marked as reduced.

Teacher, rounds, taps, targets and evaluators stay; networks, images, epochs and vocabularies get smaller. Vocabularies
keep their proportions, so that a comparison of sizes stays one. What is small already stays as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from bownet.config import Data, Detection, Experiment, Linear, Optimiser, Round, Settings, Student, Teacher, Vocabulary

Scale = Literal["small", "tiny"]
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Size:
    """The most that a reduced experiment has of each."""

    width: int  # of a wide ResNet, whose depth becomes 10; ResNet-50 becomes ResNet-18
    side: dict[str, int]  # of images, for each family of networks
    train: int
    test: int
    novel_per_class: int | None
    words: int  # K is divided by it
    kmeans: int  # iterations
    clusters: int
    components: int  # of a PCA
    epochs: int  # of a task that sees every image once in an epoch
    rotation_epochs: int  # it sees each image in four rotations
    batch: int
    linear_epochs: int  # on cached features
    online_epochs: int
    episodes: int
    svm_side: int
    svm_iterations: int
    detector: dict[str, Any]


SIZES: dict[Scale, Size] = {
    "small": Size(
        width=2,
        side={"wrn": 84, "resnet": 128},
        train=10_000,
        test=5_000,
        novel_per_class=None,
        words=4,
        kmeans=50,
        clusters=128,
        components=16,
        epochs=25,
        rotation_epochs=6,
        batch=128,
        linear_epochs=60,
        online_epochs=10,
        episodes=2000,
        svm_side=128,
        svm_iterations=2000,
        detector={"batch": 2, "train_sizes": (192, 224), "test_size": 224, "regions": 64, "proposals": 200}
        | {"steps": 400, "trials": 1},
    ),
    "tiny": Size(
        width=1,
        side={"wrn": 32, "resnet": 96},
        train=120,
        test=60,
        novel_per_class=65,
        words=256,
        kmeans=5,
        clusters=8,
        components=8,
        epochs=2,
        rotation_epochs=1,
        batch=32,
        linear_epochs=5,
        online_epochs=1,
        episodes=50,
        svm_side=64,
        svm_iterations=50,
        detector={"batch": 2, "train_sizes": (48, 64), "test_size": 64, "regions": 4, "proposals": 5, "pictures": 2}
        | {"steps": 2, "trials": 1},
    ),
}


def reduced(exp: Experiment, scale: Scale) -> Experiment:
    """The same experiment at a smaller scale."""
    size = SIZES[scale]
    side = size.side["resnet" if exp.student.arch.startswith("resnet") else "wrn"]
    transfer = exp.transfer.model_copy(
        update={"data": _fewer(exp.transfer.data, size, side, False), "linear": _linear(exp.transfer.linear, size)}
    )
    changes = {
        "scale": scale,
        "data": _fewer(exp.data, size, side, "fewshot" in exp.evaluators),
        "teacher": _teacher(exp.teacher, size),
        "vocabulary": _vocabulary(exp.vocabulary, size),
        "student": _student(exp.student, size),
        "per_round": tuple(_round(one, size) for one in exp.per_round),
        "linear": _linear(exp.linear, size),
        "transfer": transfer,
        "fewshot": _changed(exp.fewshot, episodes=min(exp.fewshot.episodes, size.episodes)),
        "voc07_svm": _changed(
            exp.voc07_svm,
            image_size=min(exp.voc07_svm.image_size, size.svm_side),
            max_iter=min(exp.voc07_svm.max_iter, size.svm_iterations),
        ),
        "detection": _detection(exp.detection, size),
    }
    return _changed(exp, **changes)


def at_scale(exp: Experiment, scale: str) -> Experiment:
    """The experiment of a preset as a run of this scale has it: one that is reduced by itself stays as it is."""
    return reduced(exp, "small" if scale == "small" else "tiny") if exp.scale == "full" != scale else exp


def of_kind(exp: Experiment, kind: str) -> Experiment:
    """The same experiment for another kind of data, whose path is still to be named; scenes need none.

    What scenes do not have is drawn: a second set of them for the transfer, and images with boxes for VOC.
    """
    if kind == exp.data.kind:
        return exp
    if kind != "scenes":
        return exp.model_copy(update={"data": exp.data.model_copy(update={"kind": kind, "path": None})})
    drawn = {"kind": "scenes", "path": None, "storage": "raw"}
    return _changed(
        exp,
        data=_changed(exp.data, **drawn),
        transfer=_changed(exp.transfer, data=_changed(exp.transfer.data, **drawn, seed=exp.data.seed + 1)),
        voc07_svm=_changed(exp.voc07_svm, path="scenes"),
        detection=_changed(exp.detection, path="scenes"),
    )


def _changed(settings: S, **changes: Any) -> S:
    """A copy that has been checked."""
    return type(settings).model_validate({**settings.model_dump(), **changes})


def _fewer(data: Data, size: Size, side: int, episodes: bool) -> Data:
    """`episodes` is whether novel classes are used."""
    few = size.novel_per_class if episodes else 1
    return _changed(
        data,
        image_size=min(data.image_size, side),
        train=min(data.train or size.train, size.train),
        test=min(data.test or size.test, size.test),
        novel_per_class=data.novel_per_class if few is None else min(data.novel_per_class or few, few),
        fraction=1.0,  # of so few images, all
        shard_size=min(data.shard_size, max(60, size.train // 10)),
    )


def _arch(arch: str, size: Size) -> str:
    match = re.fullmatch(r"wrn-(\d+)-(\d+)", arch)
    return f"wrn-10-{min(int(match[2]), size.width)}" if match else "resnet18"


def _shorter(optimiser: Optimiser, epochs: int, size: Size) -> Optimiser:
    """One pass an epoch, drops at the same parts of the training, and a rate that fits a smaller batch."""
    new, batch = min(optimiser.epochs, epochs), min(optimiser.batch, size.batch)
    part = new / optimiser.epochs
    drops = sorted({round(drop * part) for drop in optimiser.drops} & set(range(1, new)))
    return _changed(
        optimiser,
        epochs=new,
        iterations_per_epoch=None,
        batch=batch,
        drops=tuple(drops),
        warmup_epochs=optimiser.warmup_epochs * part,
        lr_batch=optimiser.lr_batch or (optimiser.batch if batch < optimiser.batch else None),
    )


def _teacher(teacher: Teacher, size: Size) -> Teacher:
    epochs = size.rotation_epochs if teacher.kind == "rotation" else size.epochs
    first, clustering = teacher.rotnet_first, {}
    if teacher.kind == "deeper_clustering":  # for all others they would be another key of the same training
        clustering["clusters"] = min(teacher.clusters, size.clusters)
        clustering["renew_every"] = min(teacher.renew_every, max(1, epochs // 10))
    return _changed(
        teacher,
        arch=_arch(teacher.arch, size),
        **clustering,
        rotnet_first=first and _shorter(first, size.rotation_epochs, size),
        head_layers=1,
        pad=min(teacher.pad, 4),
        optimiser=_shorter(teacher.optimiser, epochs, size),
    )


def _vocabulary(vocabulary: Vocabulary, size: Size) -> Vocabulary:
    return _changed(
        vocabulary,
        size=max(2, vocabulary.size // size.words),
        iterations=min(vocabulary.iterations, size.kmeans),
        pca=_components(vocabulary.pca, size),
    )


def _round(one: Round, size: Size) -> Round:
    return _changed(one, pca=_components(one.pca, size))


def _components(pca: int | None, size: Size) -> int | None:
    return pca and min(pca, size.components)


def _student(student: Student, size: Size) -> Student:
    return _changed(student, arch=_arch(student.arch, size), optimiser=_shorter(student.optimiser, size.epochs, size))


def _linear(linear: Linear, size: Size) -> Linear:
    most = size.online_epochs if linear.features == "online" else size.linear_epochs
    epochs = min(linear.epochs, most)
    drop_every = max(1, round(linear.drop_every * epochs / linear.epochs))
    return _changed(linear, epochs=epochs, drop_every=drop_every, batch=min(linear.batch, size.batch))


def _detection(detection: Detection, size: Size) -> Detection:
    steps = min(detection.steps, size.detector["steps"])
    drops = sorted({round(drop * steps / detection.steps) for drop in detection.drops} & set(range(1, steps)))
    warmup = min(detection.warmup, steps // 10 or 1, steps - 1)
    return _changed(detection, **size.detector | {"steps": steps, "drops": tuple(drops), "warmup": warmup})
