"""The paper's twelve claims: scores of a findings sweep go in; a difference, its interval and a verdict come out.

A claim compares two networks on the same seeds. It is reproduced, or not, only where the 95% interval of the difference
over seeds lies wholly on one side of what is claimed; otherwise it is undecided at this scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evaluation.interval import Interval, interval
from pipelines.paper.tables import paper_tables
from pipelines.records import Record

Verdict = Literal["reproduced", "not reproduced", "undecided", "not run"]
ALIKE = 1.0  # points within which two scores are called alike
FAR = 3.0  # points that "far better" and "much worse" must exceed


@dataclass(frozen=True)
class Rows:
    """What the paper compares: two rows of one of its tables."""

    table: str
    first: str
    second: str

    def difference(self, metric: str) -> float | None:
        """In points; None where the table does not have the score."""
        table = next(table for table in paper_tables() if table.key == self.table)
        first, second = (next(row for row in table.rows if row.name == name) for name in (self.first, self.second))
        wanted = {metric, metric.replace("linear/", "linear/conv5/")}  # a ResNet's last map stands for the network
        keys = [column.key for column in table.columns if column.metric in wanted]
        return next((first.figures[key] - second.figures[key] for key in keys), None)


@dataclass(frozen=True)
class Comparison:
    """The first minus the second, each a point of the sweep and one of its models; "" is the last model.

    `above`: more than `margin`; `below`: less than it; `alike`: within ± margin.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    paper: Rows
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


BOWNET, ROTNET = ("base", "BoWNet"), ("base", "RotNet")
CIFAR, TEACHERS, ABLATIONS, WORDS, LAYERS = (
    "cifar100",
    "miniimagenet_base_convnet",
    "cifar100_ablations",
    "cifar100_vocabulary_size",
    "imagenet_small_scale",
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        1,
        "BoWNet is far better than its RotNet teacher",
        (Comparison(BOWNET, ROTNET, Rows(CIFAR, "BoWNet", "RotNet"), margin=FAR),),
    ),
    Claim(
        2,
        "more rounds help",
        (Comparison(("two rounds", "BoWNet x2"), ("two rounds", "BoWNet"), Rows(CIFAR, "BoWNet x2", "BoWNet")),),
    ),
    Claim(3, "CutMix helps", (Comparison(BOWNET, ("no CutMix", ""), Rows(CIFAR, "BoWNet", "BoWNet w/o CutMix")),)),
    Claim(
        4,
        "a spatial pyramid does not help",
        (Comparison(("pyramid", ""), BOWNET, Rows(CIFAR, "Sp-BoWNet", "BoWNet"), "below", ALIKE),),
    ),
    Claim(
        5,
        "BoWNet is better than Deeper Clustering",
        (Comparison(BOWNET, ("Deeper Clustering", ""), Rows(CIFAR, "BoWNet", "DeeperClustering")),),
    ),
    Claim(
        6,
        "a RelLoc teacher does as well or better",
        (
            Comparison(
                ("RelLoc", "BoWNet"), BOWNET, Rows(TEACHERS, "RelLoc -> BoWNet", "RotNet -> BoWNet"), margin=-ALIKE
            ),
        ),
    ),
    Claim(
        7,
        "even a random teacher with four rounds ends above RotNet",
        (Comparison(("random, 4 rounds", ""), ROTNET, Rows(TEACHERS, "Random -> BoWNet", "RotNet")),),
    ),
    Claim(
        8,
        "accuracy grows with K, then levels off",
        (
            Comparison(BOWNET, ("a quarter of the words", ""), Rows(WORDS, "K=2048", "K=512")),
            Comparison(("twice the words", ""), BOWNET, Rows(WORDS, "K=4096", "K=2048"), "alike", ALIKE),
        ),
    ),
    Claim(
        9,
        "predicting the perturbed image's words is much worse",
        (Comparison(BOWNET, ("predict y(x~)", ""), Rows(ABLATIONS, "BoWNet", "BoWNet predict y(x~)"), margin=FAR),),
    ),
    Claim(
        10,
        "a plain linear Ω is much worse on the linear metric",
        (Comparison(BOWNET, ("linear Omega", ""), Rows(ABLATIONS, "BoWNet", "BoWNet linear Omega"), margin=FAR),),
    ),
    Claim(
        11,
        "binary and histogram are alike",
        (Comparison(("binary", ""), BOWNET, Rows(ABLATIONS, "BoWNet binary", "BoWNet"), "alike", ALIKE),),
    ),
    Claim(
        12,
        "a middle layer's words are the better target for classification",
        (
            Comparison(
                ("words of a middle layer", ""),
                BOWNET,
                Rows(LAYERS, "BoW from conv4, K=2048", "BoW from conv5, K=2048"),
            ),
        ),
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
    scores = {(record.sweep["label"], record.seed): record for record in _that_have(metric, records)}
    return [_finding(claim, scores, metric) for claim in CLAIMS]


def _that_have(metric: str, records: Sequence[Record]) -> list[Record]:
    """A later one that asked for other evaluators takes no score away."""
    return [record for record in records if any(metric in row["metrics"] for row in record.rows)]


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
    """A network of the study: its mean over seeds, each seed's own, and the runs that these are from."""

    point: str
    model: str
    mean: Interval
    by_seed: tuple[float, ...]
    runs: tuple[str, ...]


def scores_of(records: Sequence[Record], metric: str = "linear/top1") -> list[Score]:
    """Every network of the study once: what a point shares with those before it stands there."""
    by_point: dict[str, dict[int, Record]] = {}
    for record in _that_have(metric, records):
        by_point.setdefault(record.sweep["label"], {})[record.seed] = record
    made: list[Score] = []
    for point in sorted(by_point, key=lambda label: label != BOWNET[0]):
        seeds = sorted(by_point[point].items())
        for model in dict.fromkeys(row["name"] for _, record in seeds for row in record.rows):
            found = [record for _, record in seeds if metric in record.metrics(model)]
            values = tuple(record.metrics(model)[metric] for record in found)
            if values and not any(one.model == model and one.by_seed == values for one in made):
                made.append(Score(point, model, interval(values), values, tuple(record.run for record in found)))
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
