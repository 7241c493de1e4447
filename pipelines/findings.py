"""The paper's twelve claims: scores of a findings sweep go in; a difference, its interval and a verdict come out.

A claim compares two networks on the same seeds. It is reproduced, or not, only where the 95% interval of the difference
over seeds lies wholly on one side of what is claimed; otherwise it is undecided at this scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evaluation.interval import Interval, interval
from pipelines.records import Record

Verdict = Literal["reproduced", "not reproduced", "undecided", "not run"]
ALIKE = 1.0  # points within which two scores are called alike
FAR = 3.0  # points that "far better" and "much worse" must exceed


@dataclass(frozen=True)
class Comparison:
    """The first minus the second, each a point of the sweep and one of its models; "" is the last model.

    `above`: more than `margin`; `below`: less than it; `alike`: within ± margin.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    test: Literal["above", "below", "alike"] = "above"
    margin: float = 0.0

    def verdict(self, difference: Interval) -> Verdict:
        low, high, margin = difference.low, difference.high, self.margin
        if self.test == "alike":
            yes, no = -margin < low and high < margin, low > margin or high < -margin
        elif self.test == "above":
            yes, no = low > margin, high < margin
        else:
            yes, no = high < margin, low > margin
        return "reproduced" if yes else "not reproduced" if no else "undecided"

    def words(self) -> str:
        sign = {"above": ">", "below": "<", "alike": "within ±"}[self.test]
        return f"{_name(self.first)} - {_name(self.second)} {sign} {self.margin:g}".replace("± ", "±")


@dataclass(frozen=True)
class Claim:
    number: int
    text: str
    comparisons: tuple[Comparison, ...]
    paper: str  # the paper's own difference, on linear classification


BOWNET, ROTNET = ("base", "BoWNet"), ("base", "RotNet")

CLAIMS: tuple[Claim, ...] = (
    Claim(1, "BoWNet is far better than its RotNet teacher", (Comparison(BOWNET, ROTNET, margin=FAR),), "+11.2"),
    Claim(2, "more rounds help", (Comparison(("two rounds", "BoWNet x2"), ("two rounds", "BoWNet")),), "+2.6"),
    Claim(3, "CutMix helps", (Comparison(BOWNET, ("no CutMix", "")),), "+1.8"),
    Claim(4, "a spatial pyramid does not help", (Comparison(("pyramid", ""), BOWNET, "below", ALIKE),), "-0.2"),
    Claim(5, "BoWNet is better than Deeper Clustering", (Comparison(BOWNET, ("Deeper Clustering", "")),), "+6.1"),
    Claim(
        6,
        "a RelLoc teacher does as well or better",
        (Comparison(("RelLoc", "BoWNet"), BOWNET, margin=-ALIKE),),
        "+0.2",
    ),
    Claim(
        7,
        "even a random teacher with four rounds ends above RotNet",
        (Comparison(("random, 4 rounds", ""), ROTNET),),
        "+9.2",
    ),
    Claim(
        8,
        "accuracy grows with K, then levels off",
        (
            Comparison(BOWNET, ("a quarter of the words", "")),
            Comparison(("twice the words", ""), BOWNET, "alike", ALIKE),
        ),
        "+1.25, -0.02",
    ),
    Claim(
        9,
        "predicting the perturbed image's words is much worse",
        (Comparison(BOWNET, ("predict y(x~)", ""), margin=FAR),),
        "+10.2",
    ),
    Claim(
        10,
        "a plain linear Ω is much worse on the linear metric",
        (Comparison(BOWNET, ("linear Omega", ""), margin=FAR),),
        "+8.2",
    ),
    Claim(11, "binary and histogram are alike", (Comparison(("binary", ""), BOWNET, "alike", ALIKE),), "-0.1"),
    Claim(
        12,
        "a middle layer's words are the better target for classification",
        (Comparison(("words of a middle layer", ""), BOWNET),),
        "+5.0 (conv4 - conv5)",
    ),
)

Scores = Mapping[tuple[str, int], Record]  # by point and seed


@dataclass(frozen=True)
class Finding:
    """What a claim came to: a difference for each of its comparisons (None where nothing was run), and the verdict."""

    claim: Claim
    differences: tuple[Interval | None, ...]
    verdict: Verdict
    runs: tuple[str, ...]


def findings_of(records: Sequence[Record], metric: str = "linear/top1") -> list[Finding]:
    """Every claim on the records of findings sweeps; of two with the same point and seed the later one counts."""
    scores = {(record.sweep["label"], record.seed): record for record in records}
    return [_finding(claim, scores, metric) for claim in CLAIMS]


def _finding(claim: Claim, scores: Scores, metric: str) -> Finding:
    differences: list[Interval | None] = []
    runs: dict[str, None] = {}
    verdicts: list[Verdict] = []
    for comparison in claim.comparisons:
        made = []
        for seed in sorted({seed for _, seed in scores}):
            sides = [_score(scores, side, seed, metric) for side in (comparison.first, comparison.second)]
            if all(side is not None for side in sides):
                (a, run_a), (b, run_b) = (side for side in sides if side is not None)
                made.append(a - b)
                runs |= {run_a: None, run_b: None}
        differences.append(interval(made) if made else None)
        verdicts.append(comparison.verdict(interval(made)) if made else "not run")
    return Finding(claim, tuple(differences), _together(verdicts), tuple(runs))


def _score(scores: Scores, side: tuple[str, str], seed: int, metric: str) -> tuple[float, str] | None:
    point, model = side
    if (record := scores.get((point, seed))) is None or not record.rows:
        return None
    metrics = record.metrics(model or record.rows[-1]["name"])
    return (metrics[metric], record.run) if metric in metrics else None


@dataclass(frozen=True)
class Score:
    """A network of the study: its mean over seeds, and each seed's own."""

    point: str
    model: str
    mean: Interval
    by_seed: tuple[float, ...]


def scores_of(records: Sequence[Record], metric: str = "linear/top1") -> list[Score]:
    """Every network of the study once: what a point shares with those before it stands there."""
    by_point: dict[str, dict[int, Record]] = {}
    for record in records:
        by_point.setdefault(record.sweep["label"], {})[record.seed] = record
    made: list[Score] = []
    for point in sorted(by_point, key=lambda label: label != BOWNET[0]):
        seeds = sorted(by_point[point].items())
        for model in dict.fromkeys(row["name"] for _, record in seeds for row in record.rows):
            found = [record.metrics(model) for _, record in seeds]
            values = tuple(metrics[metric] for metrics in found if metric in metrics)
            if values and not any(one.model == model and one.by_seed == values for one in made):
                made.append(Score(point, model, interval(values), values))
    return made


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    """All must hold for the claim to hold, and one that does not is enough against it."""
    for one in ("not run", "not reproduced", "undecided"):
        if one in verdicts:
            return one
    return "reproduced"


def _name(side: tuple[str, str]) -> str:
    point, model = side
    return model if point == "base" else f"{point} {model}".strip()
