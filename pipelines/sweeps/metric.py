"""What trials are compared by: the metric that --metric names, or none, and experiments go in; a metric comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from bownet.config import Experiment
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone
from pipelines.evaluators import Ground
from pipelines.plan import Plan
from pipelines.stages.finetune import percent
from pipelines.store import Store


def metric_of(named: str | None, exps: Sequence[Experiment]) -> str:
    """The metric of that name, or the first evaluator's. One that no experiment can have is refused."""
    metric = named or usual_metric(exps[0])
    if any(_may_have(exp, metric) for exp in exps):
        return metric
    usual = ", ".join(dict.fromkeys(map(usual_metric, exps)))
    raise ValueError(f"metric={metric}: the evaluators of these trials do not give it; name one such as {usual}")


def check_judged(metric: str, exps: Sequence[Experiment], store: Store) -> None:
    """Refuse a metric whose evaluator the images of no experiment allow: else it is missed when all are trained."""
    reasons = []
    for exp in exps:
        obstacles = Ground(exp, exp.data, exp.seed, Plan(store)).obstacles
        reasons.append(obstacles.get(_evaluator(exp, metric)))
    if reasons and all(reasons):
        raise ValueError(f"metric={metric}: {reasons[0]}")


def usual_metric(exp: Experiment) -> str:
    """The linear classifier's where there is one: of the last tap, if it has taps of its own."""
    names = {
        "linear": f"linear/{_last(exp.linear.taps)}top1",
        "fewshot": f"fewshot/{exp.fewshot.shots[-1]}shot",
        "knn": f"knn/top1_{exp.knn.neighbours[0]}",
        "retrieval": "retrieval/map",
        "finetune": f"finetune/{percent(exp.finetune.fractions[-1])}/top1",
        "transfer": f"{exp.transfer.data.kind}/{_last(exp.transfer.linear.taps)}top1",
        "voc07_svm": f"voc07_svm/{_last(exp.voc07_svm.taps) or 'conv5/'}map",
        "detection": "detection/ap",
    }
    return next((name for evaluator, name in names.items() if evaluator in exp.evaluators), names["linear"])


def _last(taps: Sequence[str]) -> str:
    return f"{taps[-1]}/" if taps else ""


def _evaluator(exp: Experiment, metric: str) -> str:
    first = metric.partition("/")[0]
    return "transfer" if first == exp.transfer.data.kind and "transfer" in exp.evaluators else first


def _may_have(exp: Experiment, metric: str) -> bool:
    """Evaluators name their scores while they work; what follows from the settings is known before."""
    evaluator, rest = _evaluator(exp, metric), metric.partition("/")[2]
    with torch.device("meta"):
        backbone = build_backbone(exp.student.net, 0)
    known: Mapping[str, set[str]] = {
        "linear": _of_taps(exp.linear.taps, ("top1", "top5", "train_top1"), backbone),
        "transfer": _of_taps(exp.transfer.linear.taps, ("top1", "top5"), backbone),
        "fewshot": {f"{n}shot{spread}" for n in exp.fewshot.shots for spread in ("", "_ci95")},
        "knn": {f"top1_{k}" for k in exp.knn.neighbours},
        "retrieval": {"map", *(f"precision_{r}" for r in exp.retrieval.ranks)},
        "finetune": {f"{percent(share)}/top{n}" for share in exp.finetune.fractions for n in (1, 5)},
        "voc07_svm": {f"{tap}/map" for tap in exp.voc07_svm.taps or backbone.taps},
        "detection": {f"{ap}{spread}" for ap in ("ap", "ap50", "ap75") for spread in ("", "_std")},
    }
    return evaluator in exp.evaluators and rest in known[evaluator]


def _of_taps(taps: Sequence[str], names: Sequence[str], backbone: Backbone) -> set[str]:
    """Of each tap, and without its name those of the pooled feature, which is the tap where none is named."""
    taps = taps or (backbone.pooled,)
    places = [f"{tap}/" for tap in taps] + [""] * (backbone.pooled in taps)
    return {place + name for place in places for name in names}
