"""Average precision: scores and what is right go in, or a whole curve of precision and recall; one number comes out.

Three definitions are in use, and they differ by points:

- `area`: the area under the precision envelope, which at each recall is the best precision at this recall or above it.
  VOC since 2010, the VOC07 SVM benchmark, detectron2 for VOC2012.
- `voc07`: the mean of that envelope at the recalls 0, 0.1, ..., 1. VOC up to 2009, detectron2 for VOC2007.
- `steps`: the area under the curve itself, in steps, without the envelope: `average_precision_score` of scikit-learn.

COCO's is the envelope at 101 recalls instead of 11, and is none of these.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["area", "voc07", "steps"]
Floats = NDArray[np.float64]

MEANING = {
    "area": "area under the interpolated precision envelope",
    "voc07": "11-point interpolation of VOC2007",
    "steps": "area under the uninterpolated curve, as scikit-learn has it",
}
# 0.1 x 3 is a little more than 0.3 (x 6 and x 7 alike), so that a recall of 3/10 misses it: as in detectron2.
_RECALLS_11 = np.arange(0.0, 1.1, 0.1)


def average_precision(score_N: NDArray[Any], positive_N: NDArray[Any], kind: Kind = "area") -> float:
    """Of a ranking by falling score, in 0..1. Equal scores share a threshold: their order cannot matter."""
    score_N, positive_N = np.asarray(score_N), np.asarray(positive_N, bool)
    if score_N.shape != positive_N.shape or score_N.ndim != 1:
        raise ValueError(f"scores {score_N.shape} and labels {positive_N.shape}: give one label for each score")
    if not np.isfinite(score_N).all():
        raise ValueError("scores: some are not finite, so that they have no order; look for what made them")
    if not positive_N.any():
        raise ValueError(f"labels: none of {len(positive_N)} is positive, so that there is no recall; add positives")
    order = np.argsort(-score_N, kind="stable")
    ranked_N = score_N[order]
    last = np.flatnonzero(np.append(ranked_N[1:] != ranked_N[:-1], True))
    right = np.cumsum(positive_N[order])[last]
    return float(area_of_curve(right / right[-1], right / (last + 1), kind))


def area_of_curve(recall_TN: Floats, precision_TN: Floats, kind: Kind) -> Floats:
    """One number for each row of points, which run down a ranking; 0 for a row without points."""
    if not recall_TN.shape[-1]:
        return np.zeros(recall_TN.shape[:-1])
    if kind == "steps":
        return (_steps(recall_TN) * precision_TN).sum(-1)
    envelope_TN = np.maximum.accumulate(precision_TN[..., ::-1], -1)[..., ::-1]
    if kind == "area":
        return (_steps(recall_TN) * envelope_TN).sum(-1)
    return envelope_at(recall_TN, envelope_TN, _RECALLS_11).mean(-1)


def envelope_at(recall_TN: Floats, envelope_TN: Floats, at_R: Floats) -> Floats:
    """The envelope at given recalls; 0 where the curve does not get so far."""
    rows = recall_TN.reshape(-1, recall_TN.shape[-1])
    first_TR = np.stack([np.searchsorted(row, at_R) for row in rows])
    padded_TN = np.pad(envelope_TN.reshape(rows.shape), ((0, 0), (0, 1)))
    return np.take_along_axis(padded_TN, first_TR, 1).reshape(*recall_TN.shape[:-1], len(at_R))


def _steps(recall_TN: Floats) -> Floats:
    return np.diff(recall_TN, axis=-1, prepend=0.0)
