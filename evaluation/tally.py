"""Counts of right and wrong answers: scores and labels go in, batch by batch; accuracies by class and come out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Tally:
    """The confusion matrix of everything that was added, and how often the truth was among the first five."""

    def __init__(self, classes: int) -> None:
        self.confusion_CC = torch.zeros(classes, classes, dtype=torch.int64)  # row: truth, column: answer
        self.in_first_five = 0

    def add(self, score_NC: Tensor, label_N: Tensor) -> None:
        self.add_answers(score_NC.argmax(1), label_N)
        if score_NC.shape[1] > 5:
            self.in_first_five += int((score_NC.topk(5, dim=1).indices == label_N[:, None]).sum())

    def add_answers(self, answer_N: Tensor, label_N: Tensor) -> None:
        """Where there is one answer and no scores."""
        classes = len(self.confusion_CC)
        counts = torch.bincount(label_N * classes + answer_N, minlength=classes**2)
        self.confusion_CC += counts.view(classes, classes).cpu()

    def metrics(self) -> dict[str, float]:
        """`top1`, and `top5` where there are more than five classes, in percent."""
        total = max(1, int(self.confusion_CC.sum()))
        found = {"top1": 100 * self.confusion_CC.diagonal().sum().item() / total}
        if len(self.confusion_CC) > 5:
            found["top5"] = 100 * self.in_first_five / total
        return found

    def accuracy_by_class(self) -> list[float | None]:
        """In percent; None for a class of which there was no image."""
        right_C, total_C = self.confusion_CC.diagonal().tolist(), self.confusion_CC.sum(1).tolist()
        return [100 * right / total if total else None for right, total in zip(right_C, total_C, strict=True)]

    def details(self) -> dict[str, Any]:
        return {"accuracy_by_class": self.accuracy_by_class(), "confusion": self.confusion_CC.tolist()}
