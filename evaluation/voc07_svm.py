"""VOC07 classification (section 4.2): features of frozen taps and presences go in, AP per class and mAP come out.

One linear SVM for each class; its cost C is chosen by cross-validated average precision on trainval. Some fits of one
class and fold are a unit of work, for a `run` that may spread units over a cluster: results do not depend on how.

The solver sees images by their inner products only. Where features have more values than there are training images,
they are turned into the span of those, as a triangular matrix: the same inner products, the same steps of the solver,
and about a third of the numbers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csr_matrix
from threadpoolctl import ThreadpoolController

from bownet.config import Voc07Svm
from evaluation.average_precision import Floats, average_precision
from evaluation.score import Score

Presence = NDArray[np.int8]  # [N, C]: 1 there is one, 0 only difficult ones, -1 none

_POWERS = tuple(0.5**i for i in range(4, 20))
COSTS: dict[str, tuple[float, ...]] = {
    "goyal": tuple(sorted((*(10.0**i for i in range(-7, 3)), *_POWERS))),
    "obow": tuple(sorted((0.05, 0.1, 0.3, 0.5, 1.0, 3.0, 5.0, *_POWERS))),
    "vissl": (0.01, 0.1, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 50.0, 100.0, 1000.0),
}
CLASS_WEIGHT = {1: 2, -1: 1}
TOLERANCE = 1e-4
EPSILON = 1e-5  # added to the norm of a feature
UNITS_PER_FOLD = 4  # a unit prepares its images once for all of its fits; more of them keep more CPUs busy


class Fits(NamedTuple):
    """SVMs of a class, one for each cost, on all of trainval but a fold; `fold` None is all of it."""

    number: int
    costs: tuple[float, ...]
    fold: int | None


class Fitted(NamedTuple):
    """`ap` is that of the fold which was left out; weights and bias are kept where none was."""

    converged: bool
    ap: float = math.nan
    weight_D: Floats | None = None
    bias: float = 0.0


@dataclass(frozen=True, eq=False)
class Problem:
    """What all fits of a tap share; never changed, so that processes can share its memory."""

    train_ND: Floats
    train_NC: Presence
    fold_NC: NDArray[np.int8]
    max_iter: int
    seed: int


# Calls a function of what is shared and of some units on all of them; results come in the order of the units.
Run = Callable[[Callable[[Any, Sequence[Any]], list[Any]], Any, Sequence[Any]], list[Any]]


def at_once(function: Callable[[Any, Sequence[Any]], list[Any]], shared: Any, units: Sequence[Any]) -> list[Any]:
    """In this process, one after the other."""
    return function(shared, units)


def presence(annotations: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> Presence:
    """From annotations of the reader of VOC: {"classes": {name: 1 or 0}}."""
    found_NC = np.full((len(annotations), len(classes)), -1, np.int8)
    number = {name: c for c, name in enumerate(classes)}
    for row, annotation in zip(found_NC, annotations, strict=True):
        for name, value in annotation["classes"].items():
            if name not in number:
                raise ValueError(f"annotations: an object is a {name!r}; there are {', '.join(classes)}")
            row[number[name]] = value
    return found_NC


def obstacle(train_NC: Presence, test_MC: Presence, classes: Sequence[str], folds: int) -> str | None:
    """Why there can be no score, in a line; None if there can."""
    if not len(train_NC) or not len(test_MC):
        return f"there are {len(train_NC)} training and {len(test_MC)} test images, use a set that has both"
    few = {name: int(n) for name, n in zip(classes, (train_NC == 1).sum(0), strict=True) if n < folds}
    if few:
        return (
            f"{_listed(few)} training images: voc07_svm.folds={folds} needs at least {folds} images with an object of "
            "each class that is not difficult; use fewer folds (2 or more) or more images"
        )
    many = {name: int(n) for name, n in zip(classes, (train_NC < 1).sum(0), strict=True) if n < folds}
    if many:
        return (
            f"{_listed(many)} training images without one: voc07_svm.folds={folds} needs at least {folds} to tell "
            "the class from; use images of several classes"
        )
    for c, name in enumerate(classes):
        if not (test_MC[:, c] == 1).any():
            hard = int((test_MC[:, c] == 0).sum())
            return f"no test image has a {name}" + (
                f" that is not difficult ({hard} only difficult ones); use more test images"
                if hard
                else "; use more test images"
            )
        if not (test_MC[:, c] == -1).any():
            return f"every test image has a {name}, so that there is nothing to tell it from; use more test images"
    return None


def voc07_svm(
    train: Mapping[str, NDArray[Any]],
    test: Mapping[str, NDArray[Any]],
    train_NC: Presence,
    test_MC: Presence,
    classes: Sequence[str],
    config: Voc07Svm,
    run: Run = at_once,
) -> Score:
    """`<tap>/map` in percent for features [N, ...] of each tap."""
    metrics: dict[str, float] = {}
    details: dict[str, Any] = {"costs": COSTS[config.costs], "taps": {}}
    for tap in train:
        score = score_tap(train[tap], test[tap], train_NC, test_MC, classes, config, run)
        metrics |= {f"{tap}/{name}": value for name, value in score.metrics.items()}
        details["taps"][tap] = score.details
    return Score(metrics, details)


def score_tap(
    train: NDArray[Any],
    test: NDArray[Any],
    train_NC: Presence,
    test_MC: Presence,
    classes: Sequence[str],
    config: Voc07Svm,
    run: Run = at_once,
) -> Score:
    """`map` in percent; details have AP, chosen cost and cross-validated AP of each class."""
    if reason := obstacle(train_NC, test_MC, classes, config.folds):
        raise ValueError(f"voc07_svm: {reason}")
    span = Span(normalised(train))
    problem = Problem(
        span.train_ND, train_NC, folds_of(train_NC, config.folds, config.seed), config.max_iter, config.seed
    )
    costs, count = COSTS[config.costs], len(classes)
    # Large costs take many times as long as small ones: each unit has some of both.
    shares = [costs[i::UNITS_PER_FOLD] for i in range(min(UNITS_PER_FOLD, len(costs)))]
    tried = [Fits(c, share, fold) for share in shares for c in range(count) for fold in range(config.folds)]
    fitted: dict[tuple[int, float, int | None], Fitted] = {}
    for unit, done in zip(tried, run(fit_all, problem, tried), strict=True):
        fitted |= {(unit.number, cost, unit.fold): f for cost, f in zip(unit.costs, done, strict=True)}
    ap_LC = np.array([[[fitted[c, cost, f].ap for f in range(config.folds)] for c in range(count)] for cost in costs])
    ap_LC = ap_LC.mean(2)
    best_C = ap_LC.argmax(0)  # of equally good costs the smallest
    chosen = [Fits(c, (costs[best_C[c]],), None) for c in range(count)]
    final: list[Fitted] = [f for (f,) in run(fit_all, problem, chosen)]
    weight_CN, bias_C = (np.array([getattr(f, k) for f in final]) for k in ("weight_D", "bias"))
    with on_one_core():
        score_MC = normalised(test) @ span.back(weight_CN).T + bias_C
    ap_C = [
        average_precision(score_M[presence_M != 0], presence_M[presence_M != 0] == 1, "area")
        for score_M, presence_M in zip(score_MC.T, test_MC.T, strict=True)
    ]
    by_class = {
        name: {
            "ap": 100 * ap_C[c],
            "cost": costs[best_C[c]],
            "cross_validated_ap": 100 * float(ap_LC[best_C[c], c]),
        }
        for c, name in enumerate(classes)
    }
    return Score(
        {"map": float(np.mean([row["ap"] for row in by_class.values()]))},
        {
            "values": int(np.prod(train.shape[1:])),
            "classes": by_class,
            "fits": len(fitted) + len(final),
            "not_converged": sum(not f.converged for f in (*fitted.values(), *final)),
            "final_not_converged": [name for name, f in zip(classes, final, strict=True) if not f.converged],
        },
    )


def fit_all(problem: Problem, units: Sequence[Fits]) -> list[list[Fitted]]:
    """One after the other on one core: with more, the last bits would depend on their number."""
    from sklearn.exceptions import ConvergenceWarning  # here: importing takes a second, and cards import this module

    with on_one_core(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted instead
        return [fit(problem, unit) for unit in units]


def fit(problem: Problem, unit: Fits) -> list[Fitted]:
    """Train SVMs, and give the average precision of the fold that was left out, by scikit-learn's definition."""
    from sklearn.svm import LinearSVC

    # An image with difficult objects only is a negative one.
    y_N = np.where(problem.train_NC[:, unit.number] == 1, 1, -1)
    kept = np.ones(len(y_N), bool) if unit.fold is None else problem.fold_NC[:, unit.number] != unit.fold
    held_MD, held_M = problem.train_ND[~kept], y_N[~kept] == 1
    kept_ND, kept_N = csr_matrix(problem.train_ND[kept]), y_N[kept]  # as the solver keeps them: each fit would convert
    found = []
    for cost in unit.costs:
        svm = LinearSVC(
            C=cost,
            penalty="l2",
            loss="squared_hinge",
            dual=True,
            tol=TOLERANCE,
            max_iter=problem.max_iter,
            class_weight=CLASS_WEIGHT,
            random_state=problem.seed,
        ).fit(kept_ND, kept_N)
        converged = bool(np.max(svm.n_iter_) < problem.max_iter)
        if unit.fold is None:
            found.append(Fitted(converged, weight_D=svm.coef_[0], bias=float(svm.intercept_[0])))
        else:
            ap = average_precision(svm.decision_function(held_MD), held_M, "steps")
            found.append(Fitted(converged, ap))
    return found


def on_one_core() -> AbstractContextManager[Any]:
    return _libraries().limit(limits=1)


@cache
def _libraries() -> ThreadpoolController:
    """All that have threads. Looking for them takes milliseconds, which every small task would pay again."""
    import sklearn.svm  # noqa: F401  # what it brings must be there to be found

    return ThreadpoolController()


def folds_of(train_NC: Presence, folds: int, seed: int) -> NDArray[np.int8]:
    """The fold of each image for each class: scikit-learn's StratifiedKFold, shuffled with the seed."""
    from sklearn.model_selection import StratifiedKFold

    fold_NC = np.empty(train_NC.shape, np.int8)
    for c in range(train_NC.shape[1]):
        split = StratifiedKFold(folds, shuffle=True, random_state=seed).split(fold_NC, train_NC[:, c] == 1)
        for fold, (_, held) in enumerate(split):
            fold_NC[held, c] = fold
    return fold_NC


def normalised(features: NDArray[Any]) -> Floats:
    """x / (|x| + 1e-5) of flattened features, in double precision."""
    x_ND = np.asarray(features, np.float64).reshape(len(features), -1)
    if not np.isfinite(x_ND).all():
        raise ValueError("voc07_svm: some features are not finite; the network's training has diverged")
    return x_ND / (np.linalg.norm(x_ND, axis=1, keepdims=True) + EPSILON)


class Span:
    """Training features in an orthonormal basis of what they span, if that has fewer dimensions than they have values.

    X' = Q R gives X Q = R', which is triangular: image i has i + 1 values. Every weight vector that training can find
    lies in the span, so that `back` gives the one it would have found without.
    """

    def __init__(self, train_ND: Floats) -> None:
        self.train_ND = train_ND
        self._factors: tuple[Floats, Floats] | None = None
        images, values = train_ND.shape
        if values > images:
            with on_one_core():  # else the last bits would depend on the number of cores
                size = lapack.dgeqrf_lwork(values, images)[0]
                packed_DN, scale_N, *_ = lapack.dgeqrf(train_ND.T, lwork=int(size))
            self._factors = packed_DN, scale_N
            self.train_ND = np.ascontiguousarray(np.triu(packed_DN[:images]).T)

    def back(self, weight_CN: Floats) -> Floats:
        """From the basis to the features' own values: Q w, by the reflections that make up Q."""
        if self._factors is None:
            return weight_CN
        packed_DN, scale_N = self._factors
        padded_DC = np.zeros((len(packed_DN), len(weight_CN)), order="F")
        padded_DC[: weight_CN.shape[1]] = weight_CN.T
        size = lapack.dormqr("L", "N", packed_DN, scale_N, padded_DC, -1)[1][0]
        return lapack.dormqr("L", "N", packed_DN, scale_N, padded_DC, int(size))[0].T


def _listed(counts: Mapping[str, int]) -> str:
    """«cat has 0, dog has 2»"""
    shown = [f"{name} has {n}" for name, n in counts.items()]
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more classes have too few" if len(shown) > 5 else "")
