"""One-vs-rest SVMs on features of VOC's kind, both sides: ours, or the FAIR benchmark's own program with its costs.

python -m benchmarks.peers.svms IMAGES VALUES CLASSES [CHECKOUT]
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.turns import Turns
from benchmarks.voc_svm import made
from bownet.config import Voc07Svm
from evaluation.voc07_svm import score_tap

DECADES = ",".join(f"1e{power}" for power in range(-7, 3))  # it adds its powers of a half


def ours(train: NDArray[Any], test: NDArray[Any], train_NC: NDArray[Any], test_MC: NDArray[Any]) -> float:
    names = [f"class{c}" for c in range(train_NC.shape[1])]
    return float(score_tap(train, test, train_NC, test_MC, names, Voc07Svm()).metrics["map"])


def of_fair(train: NDArray[Any], test: NDArray[Any], train_NC: NDArray[Any], test_MC: NDArray[Any]) -> float:
    """It cross-validates and fits every cost; its best one by class is tested, as its second program does."""
    import svm_helper  # type: ignore[import-not-found]
    import train_svm_kfold as peer  # type: ignore[import-not-found]

    fitted: list[Any] = []
    peer.pickle = SimpleNamespace(dump=lambda model, _: fitted.append(model))  # by class and cost, none written
    costs = svm_helper.parse_cost_list(DECADES)
    with tempfile.TemporaryDirectory() as folder:
        features, targets = (f"{folder}/{name}.npy" for name in ("features", "targets"))
        np.save(features, train)
        np.save(targets, _as_theirs(train_NC))
        options = {"data_file": features, "targets_data_file": targets, "output_path": folder}
        peer.train_svm(SimpleNamespace(**options, costs_list=DECADES, cls_list=None))
        x, found = svm_helper.normalize_features(test.astype(np.float64)), []
        for c, target in enumerate(_as_theirs(test_MC).T):
            files = [svm_helper.get_svm_train_output_files(c, cost, folder)[1] for cost in costs]
            best = int(np.argmax([np.load(file)[0] for file in files]))
            scored = target != -1
            score = fitted[c * len(costs) + best].decision_function(x[scored])
            found.append(float(svm_helper.get_precision_recall(target[scored], score)[3][0]))
    return 100 * float(np.mean(found))


def _as_theirs(presence: NDArray[Any]) -> NDArray[Any]:
    """Ours: 1 there, 0 difficult, -1 not. Theirs: 1, -1, 0."""
    return np.where(presence == 1, 1, np.where(presence == 0, -1, 0))


def main(images: int, values: int, classes: int, checkout: str | None) -> None:
    turns = Turns()
    logging.disable(logging.INFO)
    if checkout:
        sys.path.insert(0, str(Path(checkout) / "tools" / "svm"))
    (train, train_NC), (test, test_MC) = (made(images, values, classes, seed) for seed in (0, 1))
    turns.play(lambda: (of_fair if checkout else ours)(train, test, train_NC, test_MC))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4] if len(sys.argv) > 4 else None)
