"""Numbers that were made otherwise than the first of their column: cards go in; marks and footnotes come out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evaluation.paper import unlike
from pipelines.results import MARKS, MOST

Card = Mapping[str, Any]


class Footnotes:
    """Of one table. Columns are compared at one scale and on one set of images: lines say these themselves."""

    def __init__(self) -> None:
        self._firsts: dict[tuple[str, ...], tuple[str, Card]] = {}
        self._notes: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        return [f"{mark} {text}" for text, mark in self._notes.items()]

    def mark(self, column: tuple[str, ...], cards: Iterable[tuple[str, Card]]) -> str:
        """Of a number that is the mean over results with these names and cards; "" if all are like the first one."""
        for name, card in cards:
            card = {part: said for part, said in card.items() if part != "seeds"}
            first, its_card = self._firsts.setdefault(column, (name, card))
            if differ := unlike(card, its_card):
                more = f" and {len(differ) - MOST} more" if len(differ) > MOST else ""
                text = f"{card.get('evaluator')} made otherwise than for {first}: {'; '.join(differ[:MOST])}{more}"
                number = len(self._notes)
                return self._notes.setdefault(text, MARKS[number % len(MARKS)] * (number // len(MARKS) + 1))
        return ""
