"""What trials are compared by: the metric that --metric names, or none, and experiments go in; a metric comes out."""

from __future__ import annotations

from collections.abc import Sequence

from bownet.config import Experiment


def metric_of(named: str | None, exps: Sequence[Experiment]) -> str:
    """The metric of that name, or the first evaluator's. One that no experiment can have is refused."""
    metric = named or usual_metric(exps[0])
    if any(_may_have(exp, metric) for exp in exps):
        return metric
    usual = ", ".join(dict.fromkeys(map(usual_metric, exps)))
    raise ValueError(f"metric={metric}: the evaluators of these trials do not give it; name one such as {usual}")


def usual_metric(exp: Experiment) -> str:
    """The linear classifier's where there is one: of the last tap, if it has taps of its own."""
    names = {
        "linear": f"linear/{_last(exp.linear.taps)}top1",
        "fewshot": f"fewshot/{exp.fewshot.shots[-1]}shot",
        "knn": f"knn/top1_{exp.knn.neighbours[0]}",
        "retrieval": "retrieval/map",
        "finetune": f"finetune/{exp.finetune.fractions[-1]:g}/top1",
        "transfer": f"{exp.transfer.data.kind}/{_last(exp.transfer.linear.taps)}top1",
        "voc07_svm": f"voc07_svm/{_last(exp.voc07_svm.taps) or 'conv5/'}map",
        "detection": "detection/ap",
    }
    return next((name for evaluator, name in names.items() if evaluator in exp.evaluators), names["linear"])


def _last(taps: Sequence[str]) -> str:
    return f"{taps[-1]}/" if taps else ""


def _may_have(exp: Experiment, metric: str) -> bool:
    """Evaluators name their scores while they work; the linear classifier's are known before."""
    first, _, rest = metric.partition("/")
    if first == "linear" and "linear" in exp.evaluators:
        return rest.rpartition("/")[0] in (exp.linear.taps or ("",))
    return first in exp.evaluators or ("transfer" in exp.evaluators and first == exp.transfer.data.kind)
