"""A complete experiment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bownet.config.data import Data
from bownet.config.method import Proxy, Round, Student, Teacher, Vocabulary
from bownet.config.protocols import Protocols

SEEDS_APART = 1000  # from one round to the next, so that round 2 of seed 0 is not round 1 of seed 1 once more


class Experiment(Protocols):
    """A complete experiment: images, teacher, rounds of vocabulary and student, evaluation."""

    name: str = "experiment"
    """Name of the experiment in MLflow."""
    scale: Literal["full", "small", "tiny"] = "full"
    """Of what is reduced every number says so. On the command line it reduces the preset, before other settings."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of all training and clustering."""
    rounds: Annotated[int, Field(ge=0, le=16)] = 1
    """How often a student is trained; each one teaches the next. 0 evaluates the base teacher only."""
    judged: Literal["all", "last"] = "all"
    """Which networks the evaluators judge: every one on the way, or the last one only."""
    data: Data = Data()
    teacher: Teacher = Teacher()
    vocabulary: Vocabulary = Vocabulary()
    student: Student = Student()
    per_round: tuple[Round, ...] = ()
    """Tap and PCA of each round, as for a random base; empty for the vocabulary's own in every round."""
    proxy: Proxy = Proxy()

    @model_validator(mode="after")
    def _one_per_round(self) -> Experiment:
        if self.per_round and len(self.per_round) != self.rounds:
            raise ValueError(f"per_round has {len(self.per_round)} entries for rounds={self.rounds}: give one for each")
        return self

    @model_validator(mode="after")
    def _something_to_whiten(self) -> Experiment:
        own = [self.vocabulary_of_round(round) for round in range(1, self.rounds + 1)]
        if own and self.vocabulary.whiten and all(vocabulary.pca is None for vocabulary in own):
            raise ValueError(
                "vocabulary.whiten=True: whitens principal components, of which vocabulary.pca=None makes none; "
                "give vocabulary.pca, or a round its own in per_round, or use False"
            )
        return self

    def seed_of_round(self, round: int) -> int:
        """Of the student of round 1, 2, ...: students of seeds less than a thousand apart share no seed."""
        return self.seed + 1 + SEEDS_APART * (round - 1)

    def vocabulary_of_round(self, round: int) -> Vocabulary:
        """Settings of round 1, 2, ..."""
        own = self.per_round[round - 1].model_dump() if self.per_round else {}
        return self.vocabulary.model_copy(update=own)
