"""The paper's tables as data: the figures, who makes each row, which metric is each column."""

import json
from pathlib import Path

import pytest

from bownet.config import Experiment
from pipelines.command_line import start_of
from pipelines.full import TEACHERS
from pipelines.paper.tables import FILE, SOURCES, Source, paper_tables
from pipelines.presets import PRESETS

SHARED = Path(__file__).resolve().parents[3] / "shared" / "paper" / "results.json"


def test_nine_tables_with_61_rows_and_a_column_for_every_figure() -> None:
    tables = paper_tables()
    assert (len(tables), sum(len(table.rows) for table in tables)) == (9, 61)
    for table in tables:
        keys = [column.key for column in table.columns]
        assert {key for row in table.rows for key in row.figures} == set(keys)
        assert SOURCES[table.key].keys() <= {row.name for row in table.rows}
    cifar = {row.name: row for row in tables[0].rows}
    assert cifar["BoWNet x3"].figures["fewshot_50"] == 93.9
    assert cifar["AMDIM"].quoted


@pytest.mark.skipif(not SHARED.exists(), reason="the paper's own file is not here")
def test_figures_are_the_papers() -> None:
    assert json.loads(FILE.read_text()) == json.loads(SHARED.read_text())


def models(exp: Experiment) -> list[str]:
    teacher = [] if exp.teacher.kind == "random" else [TEACHERS[exp.teacher.kind]]
    names = ["random", *teacher, *("BoWNet" if r == 1 else f"BoWNet x{r}" for r in range(1, exp.rounds + 1))]
    return names if exp.judged == "all" else names[-1:]


def test_every_source_is_a_model_of_its_preset_and_every_preset_makes_a_row() -> None:
    used: set[str] = set()
    for table in paper_tables():
        for row in table.rows:
            for source in row.sources:
                exp = PRESETS[source.preset]()
                assert source.model in models(exp), source
                evaluators = {column.metric.partition("/")[0] for column in table.columns if column.key in row.figures}
                evaluators = {"transfer" if name == "{transfer}" else name for name in evaluators}
                assert evaluators <= set(exp.evaluators), source
                used.add(source.preset)
    assert PRESETS.keys() - used == {"demo", "smoke", "cifar10/small"}


def test_quoted_rows_are_those_of_others() -> None:
    quoted = {row.name for table in paper_tables() for row in table.rows if row.quoted}
    assert quoted == {
        *("AMDIM", "ImageNet supervised", "Jigsaw", "Colorization", "Random", "ImageNet supervised (Goyal)"),
        *("Places205 supervised (Goyal)", "LA", "MoCo", "PIRL", "CMC"),
    }


def test_more_rounds_bring_the_rows_of_fewer() -> None:
    rows = {row.name: row.sources for row in paper_tables()[0].rows}
    assert all(
        any(source.preset == "cifar100/bownet-x3" for source in rows[name])
        for name in ("RotNet", "BoWNet", "BoWNet x2", "BoWNet x3")
    )
    assert Source("cifar100/bownet-x3", "BoWNet x2") in rows["BoWNet x2"]
    assert start_of("cifar100/bownet-x3").rounds == 3
