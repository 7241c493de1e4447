"""The experiment, top to bottom: section 2 of the paper as a program.

python pipelines/full.py demo                          in this process, on a local Ray
ray job submit --working-dir . -- python pipelines/full.py demo      on a cluster
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from bownet.config import Experiment
from pipelines.command_line import parse
from pipelines.program import run_program
from pipelines.stages.evaluations import FewshotScore, LinearScore
from pipelines.stages.features import Features
from pipelines.stages.images import Images
from pipelines.stages.student import TrainStudent
from pipelines.stages.teacher import RandomNet, RotNet
from pipelines.stages.vocabulary import BuildVocabulary
from pipelines.stages.words import Quantize
from pipelines.store import Artifact, Stage


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
    rows = [evaluate("random", net, images, exp, store)]
    if exp.teacher.kind == "rotation":
        net = store.get(RotNet(exp.teacher, exp.seed, images, model="RotNet"))
        rows.append(evaluate("RotNet", net, images, exp, store))

    words: Artifact | None = None
    for round in range(1, exp.rounds + 1):  # BoWNet, x2, x3: each student teaches the next
        name = "BoWNet" if round == 1 else f"BoWNet x{round}"
        vocabulary = store.get(BuildVocabulary(exp.vocabulary, exp.seed, images, net, arch, model=name))
        words = store.get(Quantize(images, net, vocabulary, exp.vocabulary.flip, words, model=name))
        healthy = exp.vocabulary.min_perplexity
        student = TrainStudent(exp.student, exp.seed + round, images, words, healthy, model=name)
        net, arch = store.get(student), exp.student.net
        rows.append(evaluate(name, net, images, exp, store))
    return rows


def evaluate(name: str, net: Artifact, images: Artifact, exp: Experiment, store: Getter) -> Row:
    """Frozen features, then every protocol on them that the images allow."""
    row = Row(name, {"backbone": net})
    if obstacles(images, exp).keys() == {"linear", "fewshot"}:
        return row
    features = row.artifacts["features"] = store.get(Features(images, net, model=name))
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
