"""Top-1, top-5, accuracy by class, confusion matrix: scores and labels of a part go in, counts that add up come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evaluation.score import Score

FIVE = 5


@dataclass(frozen=True)
class Tally:
    """Counts over images; those of two parts of a test set add up to those of the whole."""

    confusion_CC: Tensor  # [true class, class with the highest score]
    in_five: int  # images whose class is among the five highest scores

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.confusion_CC + other.confusion_CC, self.in_five + other.in_five)

    def score(self) -> Score:
        """`top1` and `top5` in percent; classes without an image have no accuracy."""
        images_C, right_C = self.confusion_CC.sum(1), self.confusion_CC.diag()
        total = int(images_C.sum())
        by_class: list[Any] = [
            round(100 * right / images, 4) if images else None
            for right, images in zip(right_C.tolist(), images_C.tolist(), strict=True)
        ]
        return Score(
            {"top1": 100 * int(right_C.sum()) / total, "top5": 100 * self.in_five / total},
            {"top1_by_class": by_class, "confusion": self.confusion_CC.tolist()},
        )


def tally(scores_NC: Tensor, labels_N: Tensor) -> Tally:
    """Of the scores of some images; of equal scores the class with the lower number counts as the higher."""
    classes = scores_NC.shape[1]
    labels_N = labels_N.to(scores_NC.device).long()
    guess_N = scores_NC.argmax(1)
    confusion_CC = torch.bincount(labels_N * classes + guess_N, minlength=classes**2).view(classes, classes)
    own_N1 = scores_NC.gather(1, labels_N[:, None])
    earlier_NC = torch.arange(classes, device=scores_NC.device) < labels_N[:, None]
    above_N = ((scores_NC > own_N1) | ((scores_NC == own_N1) & earlier_NC)).sum(1)
    return Tally(confusion_CC.cpu(), int((above_N < FIVE).sum()))
