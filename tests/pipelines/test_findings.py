"""The twelve claims: verdicts by hand, and findings from records that are written by hand."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown import markdown
from rich.console import Console

from bownet.config import Experiment
from evaluation.interval import Interval
from pipelines.findings import CLAIMS, Comparison, Rows, findings_of, scores_of
from pipelines.presets import PRESETS
from pipelines.records import Record, write_record
from pipelines.report import report
from pipelines.reporting.claims import findings_markdown
from pipelines.sweeps.named import NAMED
from pipelines.sweeps.space import changed
from pipelines.sweeps.trial import Job, base_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
A, B = ("base", "BoWNet"), ("base", "RotNet")
PAPER = Rows("cifar100", "BoWNet", "RotNet")


@pytest.mark.parametrize(
    ("test", "margin", "mean", "half", "expected"),
    [
        ("above", 0.0, 2.0, 1.0, "reproduced"),
        ("above", 0.0, 0.5, 1.0, "undecided"),
        ("above", 0.0, -2.0, 1.0, "not reproduced"),
        ("above", 3.0, 2.0, 0.5, "not reproduced"),  # better, but not far better
        ("above", -1.0, 0.0, 0.5, "reproduced"),  # as well or better
        ("below", 1.0, 0.0, 0.5, "reproduced"),
        ("below", 1.0, 3.0, 0.5, "not reproduced"),
        ("alike", 1.0, 0.2, 0.5, "reproduced"),
        ("alike", 1.0, 0.8, 0.5, "undecided"),
        ("alike", 1.0, -2.0, 0.5, "not reproduced"),
        ("above", 0.0, 9.0, None, "undecided"),  # one seed decides nothing
    ],
)
def test_verdicts_by_hand(test: Any, margin: float, mean: float, half: float | None, expected: str) -> None:
    assert Comparison(A, B, PAPER, test, margin).verdict(Interval(mean, half, 3 if half else 1)) == expected


def test_what_the_paper_says_is_of_its_tables() -> None:
    def paper(metric: str) -> list[list[float | None]]:
        found = [[c.paper.difference(metric) for c in claim.comparisons] for claim in CLAIMS]
        return [[None if value is None else round(value, 2) for value in values] for values in found]

    linear = [[11.2], [2.6], [1.8], [-0.2], [6.1], [0.2], [9.2], [1.25, -0.02], [10.2], [8.2], [-0.1], [5.01]]
    assert paper("linear/top1") == linear
    few = [[10.5], [1.4], [0.2], [-0.1], [1.6], [1.4], [10.0], [None, None], [5.0], [1.7], [0.3], [None]]
    assert paper("fewshot/50shot") == few
    assert paper("knn/top1") == [[None] * len(claim.comparisons) for claim in CLAIMS]


def test_there_are_twelve_claims_on_points_of_the_sweep() -> None:
    assert [claim.number for claim in CLAIMS] == list(range(1, 13))
    points = {point.label for point in NAMED["findings"](PRESETS["cifar10/small"]())}
    used = {side[0] for claim in CLAIMS for c in claim.comparisons for side in (c.first, c.second)}
    assert used == points


def record(point: str, seed: int, **scores: float) -> Record:
    rows = [{"name": name.replace("_", " "), "metrics": {"linear/top1": value}} for name, value in scores.items()]
    settings = PRESETS["cifar10/small"]().model_dump(mode="json") | {"seed": seed}
    sweep = {"name": "findings", "label": point}
    return Record(f"{point}-{seed}".replace(" ", "-"), settings, rows, 1.0, {"experiment_id": "7"}, sweep)


def test_differences_are_paired_by_seed() -> None:
    records = [record("base", seed, RotNet=50.0 + 9 * seed, BoWNet=56.0 + 9 * seed + 0.1 * seed) for seed in range(3)]
    records += [record("no CutMix", seed, RotNet=1, BoWNet=55.5 + 9 * seed) for seed in range(2)]
    found = findings_of(records)
    (first,) = found[0].differences
    assert first is not None
    assert (first.mean, first.count) == (pytest.approx(6.1), 3)
    assert first.half == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)  # the seeds' own 9 points cancel out
    assert found[0].verdict == "reproduced"
    (third,) = found[2].differences
    assert third is not None
    assert (third.mean, third.count) == (pytest.approx(0.55), 2)
    assert found[2].runs == ("base-0", "no-CutMix-0", "base-1", "no-CutMix-1")
    assert found[1].verdict == "not run"
    other = replace(records[0], rows=[{"name": "BoWNet", "metrics": {"fewshot/5shot": 1.0}}])
    assert findings_of([*records, other]) == found
    assert scores_of([*records, other]) == scores_of(records)
    text = findings_markdown(found, records)
    assert "| 1 | BoWNet is far better than its RotNet teacher | BoWNet - RotNet \\> 3 | +6.10 ± 0.25 | 3 |" in text
    page = markdown(text, extensions=["tables"])
    assert '<td>undecided <a href="#run-2">[2]</a></td>' in page  # claim 3
    to = "http://127.0.0.1:5000/#/experiments/7/runs"
    of_two = ", ".join(f'<a href="{to}/{name}">{name}</a>' for name in found[2].runs)
    assert f'<a id="run-2"></a>2: {of_two}</li>' in page
    assert '<td>56.0, 65.1, 74.2 <a href="#run-1">[1]</a></td>' in page  # the first claim's runs are those of the base


@pytest.mark.parametrize("metric", ["linear/top1", "fewshot/50shot"])
def test_the_study_in_the_docs_is_what_its_files_give(metric: str, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for file in (DOCS / "findings").glob("*.json"):
        shutil.copy(file, tmp_path / "results")
    report(["findings", "--store", str(tmp_path), "--output", str(tmp_path), "--metric", metric], Console())
    text = re.sub(r" \[\\\[\d+\\\]\]\(#run-\d+\)", "", (tmp_path / "findings.md").read_text())  # no links to local runs
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    if metric == "linear/top1":
        assert len(rows) == 2 * 2 + len(CLAIMS) + 19  # headings, claims, networks
    else:
        rows = rows[: 2 + len(CLAIMS)]
    written = (DOCS / "findings.md").read_text().splitlines()
    assert [row for row in rows if row not in written] == []
    if metric == "linear/top1":
        readme = (DOCS.parent / "README.md").read_text().splitlines()
        claims = [row.split(" | ") for row in rows[1 : 1 + len(CLAIMS)]]
        assert [row for row in claims if " | ".join([*row[:2], row[3], *row[5:]]) not in readme] == []


def test_each_network_of_a_study_has_one_score() -> None:
    """What is shared with the base stands there; a seed that is missing makes no pair."""
    records = [record("no CutMix", s, RotNet=50.0 + s, BoWNet=58.0 + s) for s in range(3)]
    records += [record("base", s, RotNet=50.0 + s, BoWNet=56.0 + 2 * s) for s in range(3)]
    found = [(one.point, one.model, one.by_seed) for one in scores_of(records)]
    assert found == [
        ("base", "RotNet", (50.0, 51.0, 52.0)),
        ("base", "BoWNet", (56.0, 58.0, 60.0)),
        ("no CutMix", "BoWNet", (58.0, 59.0, 60.0)),
    ]
    text = findings_markdown(findings_of(records), records)
    assert "| base | BoWNet | 58.0 ± 5.0 | 56.0, 58.0, 60.0 [" in text  # t(2) = 4.303, s = 2


def test_a_metric_that_the_study_has_not_is_refused(tmp_path: Path) -> None:
    write_record(str(tmp_path), record("base", 0, RotNet=50.0, BoWNet=56.0))
    with pytest.raises(ValueError, match="metric=fewshot: unknown; the study has linear/top1"):
        report(["findings", "--store", str(tmp_path), "--metric", "fewshot"], Console())


def test_a_claim_of_two_comparisons_needs_both() -> None:
    records = [record("base", s, BoWNet=58.0) for s in range(3)]
    records += [record("a quarter of the words", s, BoWNet=55.0 + 0.1 * s) for s in range(3)]
    assert findings_of(records)[7].verdict == "not run"
    same = [record("twice the words", s, BoWNet=58.2 + 0.1 * s) for s in range(3)]
    assert findings_of([*records, *same])[7].verdict == "reproduced"
    worse = [record("twice the words", s, BoWNet=50.0 + 0.1 * s) for s in range(3)]
    assert findings_of([*records, *worse])[7].verdict == "not reproduced"


def test_studies_of_two_experiments_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last one is reported; a sweep with more seeds of the same experiment adds to it."""
    for base, seed, score, day in (("old", 0, 10.0, 1), ("new", 1, 56.0, 2), ("new", 2, 58.0, 3)):
        made = record("base", seed, RotNet=50.0, BoWNet=score)
        made = replace(made, run=f"{base}-{seed}", sweep={**made.sweep, "base": base}, finished=f"2020-01-0{day}")
        write_record(str(tmp_path), made)
    report(["findings", "--store", str(tmp_path), "--output", str(tmp_path / "out")], Console())
    written = (tmp_path / "out" / "findings.md").read_text()
    assert "| +7.00 ± 12.71 | 2 |" in written  # 6 and 8: t(1) = 12.706, s = sqrt(2)
    assert "runs/new-1>), [new-2](" in written
    assert "old-0" not in written
    printed = capsys.readouterr().out
    assert "+7.00 ± 12.71" in printed
    assert "1 record of studies of other experiments left out" in printed


def test_the_base_of_a_sweep_is_its_experiment() -> None:
    exp = PRESETS["cifar10/small"]()

    def base(**changes: Any) -> str:
        settings = exp.model_copy(update=changes).model_dump(mode="json")
        return base_of(Job("findings", "r", settings, "", "", 1, 0.0, "linear/top1"))

    moved = exp.data.model_copy(update={"path": "/elsewhere"})
    assert base() == base(seed=4, name="another", data=moved)
    assert base() != base(rounds=2)
    proxy, data = exp.proxy.model_copy(update={"every": 1}), exp.data.model_copy(update={"shard_size": 50})
    assert base() == base(proxy=proxy, data=data, evaluators=("linear",))
    assert base() != base(scale="tiny")


def test_more_seeds_can_be_added_to_the_study_in_the_docs() -> None:
    file = json.loads((DOCS / "findings" / "base-0.json").read_text())
    assert base_of(Job("findings", "r", file["settings"], "", "", 1, 0.0, "linear/top1")) == file["sweep"]["base"]
    now = Experiment.model_validate(file["settings"])
    later = json.loads((DOCS / "findings" / "Deeper-Clustering-0.json").read_text())
    (point,) = (point for point in NAMED["findings"](now) if point.label == "Deeper Clustering")
    assert changed(now, point.settings) == Experiment.model_validate(later["settings"])


REFUSED = {
    "demo": "rounds=2: the findings compare one BoWNet and its RotNet, both judged; use 1",
    "imagenet-small/bownet-conv4": "judged=last: the findings compare one BoWNet and its RotNet, both judged; use all",
    "miniimagenet/relloc-bownet": "teacher.kind=relative_location: the findings .*; use rotation",
    "cifar100/sp-bownet": "preset=cifar100/sp-bownet: 'pyramid' of the findings would be the same .* as 'base'",
}


@pytest.mark.parametrize("preset", REFUSED)
def test_a_base_of_which_the_claims_would_be_false_is_refused(preset: str) -> None:
    with pytest.raises(ValueError, match=f"^{REFUSED[preset]}") as caught:
        NAMED["findings"](PRESETS[preset]())
    assert "\n" not in str(caught.value)


def test_claims_that_would_compare_an_experiment_with_itself() -> None:
    one_round = changed(PRESETS["demo"](), {"rounds": 1})
    with pytest.raises(ValueError, match="'no CutMix' of the findings would be the same experiment as 'base'"):
        NAMED["findings"](one_round)
    assert len(NAMED["findings"](changed(one_round, {"student.cutmix": True}))) == 13
    judged = changed(PRESETS["imagenet-small/bownet-conv4"](), {"judged": "all"})
    with pytest.raises(ValueError, match="'binary' of the findings would be the same experiment as 'base'"):
        NAMED["findings"](judged)
    with pytest.raises(ValueError, match="'words of a middle layer' of the findings would be"):
        NAMED["findings"](changed(judged, {"student.bow": "count"}))
