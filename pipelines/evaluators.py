"""Every evaluator, by its name in `evaluators`: a network and what it is judged on go in, a score artifact comes out.

A new evaluator is a file with its stage and an entry in EVALUATORS; docs/evaluation.md shows how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from bownet.config import KINDS, Data, Net, Protocols
from pipelines.stages.detection import DetectionScore, detection_data
from pipelines.stages.detection_trial import DetectionTrial
from pipelines.stages.features import Features, check_taps
from pipelines.stages.fewshot import FewshotScore
from pipelines.stages.finetune import FinetuneScore, FinetuneTraining, one_fraction_each
from pipelines.stages.images import Images
from pipelines.stages.knn import KnnScore
from pipelines.stages.linear import LinearScore
from pipelines.stages.linear_online import OnlineLinearScore, TransferScore
from pipelines.stages.retrieval import RetrievalScore
from pipelines.stages.voc07_svm import Voc07SvmScore, voc_data
from pipelines.store import Artifact, Stage


class Getter(Protocol):
    """A store that builds, or a plan that only looks."""

    @property
    def root(self) -> str: ...

    def get(self, stage: Stage) -> Artifact: ...

    def note(self, text: str) -> None:
        """Something that people should know before it runs."""


class Ground:
    """What networks are judged on, and how. Images are asked for when the first evaluator needs them."""

    def __init__(self, settings: Protocols, data: Data, seed: int, store: Getter) -> None:
        self.settings, self.data, self.seed, self.store = settings, data, seed, store
        self._got: dict[Stage, Artifact] = {}

    def get(self, stage: Stage) -> Artifact:
        """From the store, once: evaluators may share features, and a plan or a report shall list them once."""
        if stage not in self._got:
            self._got[stage] = self.store.get(stage)
        return self._got[stage]

    @property
    def images(self) -> Artifact:
        return self.get(Images(self.data))

    @cached_property
    def obstacles(self) -> dict[str, str]:
        """Evaluators that the images do not allow, and why: known before anything is trained."""
        why = {name: EVALUATORS[name].obstacle(self) for name in self.settings.evaluators if name in EVALUATORS}
        return {name: reason for name, reason in why.items() if reason}


@dataclass(frozen=True)
class Candidate:
    """A network that is to be judged: its name in the table, its artifact and its architecture."""

    name: str
    net: Artifact
    arch: Net


@dataclass(frozen=True)
class Evaluator:
    """What the programs must know of an evaluator."""

    obstacle: Callable[[Ground], str | None]
    """Why these images cannot be used, such as that they have no labels; None if they can. Nothing is built yet."""
    score: Callable[[Ground, Candidate], Artifact]
    """Asks the store for all stages up to the score, which has metrics.json and protocol.json."""
    columns: tuple[str, ...]
    """Metrics that the printed table shows, as patterns of fnmatch; the JSON has all."""


def features_of(ground: Ground, candidate: Candidate) -> Artifact:
    """Of all evaluators on cached features, in one pass: the pooled feature, and what the linear classifiers want."""
    config = ground.settings.linear
    wants = "linear" in ground.settings.evaluators and config.features == "cached"
    taps = config.taps if wants else ()
    return ground.get(Features(ground.images, candidate.net, candidate.arch, taps, config.pool, model=candidate.name))


def linear(ground: Ground, candidate: Candidate) -> Artifact:
    config, images, name = ground.settings.linear, ground.images, candidate.name
    check_taps(candidate.arch, config.taps, "linear.taps")
    if config.features == "online":
        return ground.get(OnlineLinearScore(config, ground.seed, images, candidate.net, model=name))
    return ground.get(LinearScore(config, ground.seed, images, features_of(ground, candidate), model=name))


def other_images(ground: Ground, data: Data, setting: str) -> Artifact:
    """Images of an evaluator's own; where they are not there, the error names the setting that says where."""
    try:
        return ground.get(Images(data))
    except ValueError as error:
        told = str(error).replace("data.path=", f"{setting}=", 1).replace("data.voc_train=", "detection.train=")
        raise ValueError(told) from None


def transfer_images(ground: Ground) -> Artifact:
    return other_images(ground, ground.settings.transfer.data, "transfer.data.path")


def transfer(ground: Ground, candidate: Candidate) -> Artifact:
    config, images = ground.settings.transfer.linear, transfer_images(ground)
    check_taps(candidate.arch, config.taps, "transfer.linear.taps")
    return ground.get(TransferScore(config, ground.seed, images, candidate.net, model=candidate.name))


def fewshot(ground: Ground, candidate: Candidate) -> Artifact:
    features = features_of(ground, candidate)
    return ground.get(FewshotScore(ground.settings.fewshot, ground.images, features, model=candidate.name))


def knn(ground: Ground, candidate: Candidate) -> Artifact:
    features = features_of(ground, candidate)
    return ground.get(KnnScore(ground.settings.knn, ground.images, features, model=candidate.name))


def retrieval(ground: Ground, candidate: Candidate) -> Artifact:
    features = features_of(ground, candidate)
    return ground.get(RetrievalScore(ground.settings.retrieval, ground.images, features, model=candidate.name))


def finetune(ground: Ground, candidate: Candidate) -> Artifact:
    config, images, net = ground.settings.finetune, ground.images, candidate.net
    trained = tuple(
        ground.get(FinetuneTraining(one, ground.seed, images, net, model=candidate.name))
        for one in one_fraction_each(config)
    )
    return ground.get(FinetuneScore(config, ground.seed, images, net, trained, model=candidate.name))


def voc07_images(ground: Ground) -> Artifact:
    return other_images(ground, voc_data(ground.settings.voc07_svm, ground.data), "voc07_svm.path")


def voc07_svm(ground: Ground, candidate: Candidate) -> Artifact:
    config, images = ground.settings.voc07_svm, voc07_images(ground)
    return ground.get(Voc07SvmScore(config, images, candidate.net, candidate.arch, model=candidate.name))


def detection_images(ground: Ground) -> Artifact:
    return other_images(ground, detection_data(ground.settings.detection, ground.data), "detection.path")


def detection(ground: Ground, candidate: Candidate) -> Artifact:
    config, images = ground.settings.detection, detection_images(ground)
    trained = tuple(
        ground.get(DetectionTrial(config, trial, images, candidate.net, candidate.arch, model=candidate.name))
        for trial in range(config.trials)
    )
    return ground.get(DetectionScore(config, images, trained, candidate.arch, model=candidate.name))


EVALUATORS: dict[str, Evaluator] = {
    "linear": Evaluator(
        lambda ground: LinearScore.obstacle(ground.images, ground.settings.linear),
        linear,
        ("linear/top1", "linear/conv*/top1", "linear/block*/top1"),  # the pooled feature is the first
    ),
    "transfer": Evaluator(
        lambda ground: TransferScore.obstacle(transfer_images(ground)),
        transfer,
        tuple(f"{kind}/{tap}top1" for kind in KINDS for tap in ("", "conv*/", "block*/")),
    ),
    "fewshot": Evaluator(
        lambda ground: FewshotScore.obstacle(ground.images, ground.settings.fewshot), fewshot, ("fewshot/*shot",)
    ),
    "knn": Evaluator(lambda ground: KnnScore.obstacle(ground.images, ground.settings.knn), knn, ("knn/top1_*",)),
    "retrieval": Evaluator(
        lambda ground: RetrievalScore.obstacle(ground.images, ground.settings.retrieval), retrieval, ("retrieval/map",)
    ),
    "finetune": Evaluator(
        lambda ground: FinetuneScore.obstacle(ground.images, ground.settings.finetune), finetune, ("finetune/*/top1",)
    ),
    "voc07_svm": Evaluator(
        lambda ground: Voc07SvmScore.obstacle(voc07_images(ground), ground.settings.voc07_svm),
        voc07_svm,
        ("voc07_svm/*/map",),
    ),
    "detection": Evaluator(
        lambda ground: DetectionTrial.obstacle(detection_images(ground)),
        detection,
        ("detection/ap50", "detection/ap75", "detection/ap"),
    ),
}


@dataclass(frozen=True)
class Row:
    """One line of the results table: a network and its scores."""

    name: str
    artifacts: dict[str, Artifact]
    against: str = ""  # the row that its comparison is with
    arch: Net | None = None  # of its network

    def result(self) -> dict[str, Any]:
        scores = {name: artifact for name, artifact in self.artifacts.items() if name in EVALUATORS}
        said: dict[str, Any] = {
            "name": self.name,
            "metrics": {k: v for score in scores.values() for k, v in score.read_json("metrics.json").items()},
            "protocol": {name: score.read_json("protocol.json") for name, score in scores.items()},
            "artifacts": {role: artifact.ref for role, artifact in self.artifacts.items()},
        }
        if "comparison" in self.artifacts:
            differences = self.artifacts["comparison"].read_json("comparison.json")
            said["comparison"] = {"with": self.against, "differences": differences}
        return said


def judge(ground: Ground, candidate: Candidate) -> Row:
    """A network by every evaluator that is asked for and that the images allow."""
    row = Row(candidate.name, {"backbone": candidate.net}, arch=candidate.arch)
    for name in ground.settings.evaluators:
        if name not in EVALUATORS:
            raise ValueError(f"evaluators={name}: there are {', '.join(EVALUATORS)}")
        if name in ground.obstacles:
            continue
        score = EVALUATORS[name].score(ground, candidate)
        features = score.stage.inputs().get("features") if score.stage else None
        if features is not None and features not in row.artifacts.values():
            row.artifacts["features" if "features" not in row.artifacts else f"{name}_features"] = features
        row.artifacts[name] = score
    return row
