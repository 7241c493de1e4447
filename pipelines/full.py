"""The experiment, top to bottom: section 2 of the paper as a program.

python pipelines/full.py demo                          in this process, on a local Ray
ray job submit --working-dir . -- python pipelines/full.py demo      on a cluster
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bownet.config import Experiment, Net, Student, Teacher
from pipelines.command_line import parse
from pipelines.program import run_program
from pipelines.stages.checkpoint import CheckpointNet
from pipelines.stages.features import Features
from pipelines.stages.fewshot import FewshotScore
from pipelines.stages.images import Images
from pipelines.stages.linear import LinearScore
from pipelines.stages.student import TrainStudent
from pipelines.stages.teacher import RandomNet, TrainTeacher
from pipelines.stages.vocabulary import BuildVocabulary
from pipelines.stages.words import Quantize
from pipelines.store import Artifact, Stage

TEACHERS = {  # as the paper's tables call them
    "rotation": "RotNet",
    "relative_location": "RelLoc",
    "deeper_clustering": "Deeper Clustering",
    "supervised": "supervised",
    "cosine_classifier": "supervised CC",
    "checkpoint": "checkpoint",
}


class Getter(Protocol):
    """A store that builds, or a plan that only looks."""

    def get(self, stage: Stage) -> Artifact: ...

    def note(self, text: str) -> None:
        """Something that people should know before it runs."""


@dataclass(frozen=True)
class Row:
    """One line of the results table: a network and its scores."""

    name: str
    artifacts: dict[str, Artifact]

    def result(self) -> dict[str, Any]:
        scores = {name: self.artifacts[name] for name in ("linear", "fewshot") if name in self.artifacts}
        return {
            "name": self.name,
            "metrics": {k: v for score in scores.values() for k, v in score.read_json("metrics.json").items()},
            "protocol": {name: score.read_json("protocol.json") for name, score in scores.items()},
            "artifacts": {role: artifact.ref for role, artifact in self.artifacts.items()},
        }


def experiment(exp: Experiment, store: Getter) -> list[Row]:
    """Images -> base teacher -> [vocabulary -> words -> student] x rounds, each network evaluated when it is there."""
    images = store.get(Images(exp.data))
    for obstacle in obstacles(images, exp).values():
        store.note(obstacle)

    net, arch = store.get(RandomNet(exp.teacher.net, exp.seed, images, model="random")), exp.teacher.net
    rows = [evaluate("random", net, arch, images, exp, store)]
    if exp.teacher.kind != "random":
        name = TEACHERS[exp.teacher.kind]
        net = base_teacher(exp, images, store, name)
        rows.append(evaluate(name, net, arch, images, exp, store))

    words: Artifact | None = None
    for round in range(1, exp.rounds + 1):  # BoWNet, x2, x3: each student teaches the next
        name = "BoWNet" if round == 1 else f"BoWNet x{round}"
        settings = exp.vocabulary_of_round(round)
        vocabulary = store.get(BuildVocabulary(settings, exp.seed, images, net, arch, model=name))
        words = store.get(Quantize(images, net, vocabulary, settings.flip, words, model=name))
        student = TrainStudent(
            exp.student, exp.seed + round, images, words, settings.min_perplexity, proxy=exp.proxy, model=name
        )
        if exp.student.target == "perturbed":
            student = replace(student, teacher=net, vocabulary=vocabulary)
        net, arch = store.get(student), exp.student.net
        rows.append(evaluate(name, net, arch, images, exp, store))
    return rows


def base_teacher(exp: Experiment, images: Artifact, store: Getter, name: str) -> Artifact:
    """The first teacher: read from a file, or trained on the task that teacher.kind names."""
    if exp.teacher.kind == "checkpoint":
        assert exp.teacher.weights is not None
        return store.get(CheckpointNet(exp.teacher.net, exp.teacher.weights, model=name))
    if exp.teacher.kind != "deeper_clustering":
        return store.get(TrainTeacher(exp.teacher, exp.seed, images, proxy=exp.proxy, model=name))
    start: Artifact | None = None
    if exp.teacher.rotnet_first:
        t = exp.teacher
        first = Teacher(net=t.net, head_layers=t.head_layers, pad=t.pad, optimiser=exp.teacher.rotnet_first)
        start = store.get(TrainTeacher(first, exp.seed, images, model="RotNet"))
    like = Student(cutmix=exp.student.cutmix, perturbation=exp.student.perturbation)
    return store.get(TrainTeacher(exp.teacher, exp.seed, images, like, start, exp.proxy, model=name))


def evaluate(name: str, net: Artifact, arch: Net, images: Artifact, exp: Experiment, store: Getter) -> Row:
    """Frozen features, then every protocol on them that the images allow."""
    row = Row(name, {"backbone": net})
    if obstacles(images, exp).keys() == {"linear", "fewshot"}:
        return row
    features = store.get(Features(images, net, arch, exp.linear.taps, exp.linear.pool, model=name))
    row.artifacts["features"] = features
    if "linear" not in obstacles(images, exp):
        row.artifacts["linear"] = store.get(LinearScore(exp.linear, exp.seed, images, features, model=name))
    if "fewshot" not in obstacles(images, exp):
        row.artifacts["fewshot"] = store.get(FewshotScore(exp.fewshot, images, features, model=name))
    return row


def obstacles(images: Artifact, exp: Experiment) -> dict[str, str]:
    """Evaluators that these images do not allow, and why: said before anything is trained."""
    why = {
        "linear": LinearScore.obstacle(images, exp.linear),
        "fewshot": FewshotScore.obstacle(images, exp.fewshot),
    }
    return {name: reason for name, reason in why.items() if reason}


def main() -> int:
    return run_program(lambda: parse(__doc__, sys.argv[1:]), experiment)


if __name__ == "__main__":
    sys.exit(main())
