"""Reports: runs that are written by hand go in, cells, costs and files come out; and report.py as people run it."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment
from markdown import markdown

from pipelines.command_line import parse
from pipelines.paper.matching import presets_of
from pipelines.paper.tables import paper_tables
from pipelines.records import Record, read_records, write_record
from pipelines.reporting.collect import link, paper_report
from pipelines.reporting.cost import Cost, cost_of
from pipelines.reporting.html import as_html
from pipelines.reporting.latex import as_latex
from pipelines.reporting.latex import plain as latex_plain
from pipelines.reporting.markdown import as_markdown
from pipelines.reporting.model import Cell, Line, Report, text
from pipelines.store import StoreError

PROGRAM = [sys.executable, str(ROOT / "pipelines" / "report.py")]
TINY = ["--scale", "tiny", "--data.kind", "scenes"]


def run(name: str, preset: str, scores: dict[str, float], *settings: str, seed: int = 0) -> Record:
    """As a run of the preset leaves it, with these linear scores by model."""
    exp = parse(None, [preset, *settings, "--seed", str(seed)]).experiment
    rows: list[dict[str, Any]] = [
        {
            "name": model,
            "metrics": {"linear/top1": score, "fewshot/1shot": score / 2, "fewshot/1shot_ci95": 0.4},
            "protocol": {},
            "artifacts": {"backbone": "student/none"},
            "scale": exp.scale,
        }
        for model, score in scores.items()
    ]
    return Record(name, exp.model_dump(mode="json"), rows, 1.0, {"experiment_id": "7"}, finished=f"2020-01-0{seed + 1}")


def ours(report: Report, table: str, row: str) -> list[Line]:
    number = [t.key for t in paper_tables()].index(table)
    found = next(r for r in report.tables[number].rows if r.name == row)
    return [line for line in found.lines if line.who == "ours"]


def test_a_cell_is_the_mean_over_seeds_and_names_its_runs(tmp_path: Path) -> None:
    records = [
        run("a", "cifar100/bownet-x3", {"RotNet": 40, "BoWNet": 50, "BoWNet x2": 51, "BoWNet x3": 52}, *TINY),
        run("b", "cifar100/bownet-x3", {"RotNet": 42, "BoWNet": 54}, *TINY, seed=1),
    ]
    report = paper_report(records, str(tmp_path))
    (line,) = ours(report, "cifar100", "BoWNet")
    assert (line.scale, line.data, line.seeds) == ("tiny", "scenes", "0 1")
    linear = line.cells[-1]
    assert linear is not None
    assert linear.value == 52
    assert linear.spread == pytest.approx(12.706 * 2 * 2**0.5 / 2**0.5, rel=1e-3)  # t(1) s / sqrt(2), s = 2 sqrt(2)
    assert [one.run for one in linear.runs] == ["a", "b"]
    (third,) = ours(report, "cifar100", "BoWNet x3")
    assert third.cells[0] is not None
    assert (third.cells[0].value, third.cells[0].spread) == (26, 0.4)  # one seed: the interval over episodes
    assert third.cells[1] is None
    (empty,) = ours(report, "cifar100", "Sp-BoWNet")
    assert empty.cells == (None,) * 5
    assert ours(report, "cifar100", "AMDIM") == []
    assert ours(report, "cifar100_ablations", "RotNet")[0].seeds == "0 1"


def test_settings_and_not_names_decide_to_which_row_a_run_belongs(tmp_path: Path) -> None:
    other = run("a", "cifar100/bownet", {"BoWNet": 1}, *TINY, "--vocabulary.size", "2")
    assert presets_of(other.settings) == ("cifar100/vocabulary-512",)  # 512 / 256
    clusters = {**other.settings, "teacher": {**other.settings["teacher"], "clusters": 8, "renew_every": 1}}
    assert presets_of(clusters) == presets_of(other.settings)  # nothing is clustered
    unknown = run("b", "cifar100/bownet", {"BoWNet": 1}, *TINY, "--student.optimiser.lr", "0.2")
    assert presets_of(unknown.settings) == ()
    moved = run("c", "cifar100/bownet", {"BoWNet": 1}, "--data.path", "/elsewhere", "--name", "mine")
    careful = run("d", "cifar100/bownet", {"BoWNet": 1}, "--vocabulary.min_perplexity", "9")
    assert presets_of(careful.settings) == presets_of(moved.settings)
    assert set(presets_of(moved.settings)) == {"cifar100/bownet", "cifar100/vocabulary-2048"}
    report = paper_report([other, unknown, moved], str(tmp_path))
    said = "run b of cifar100/bownet is in no row, since its settings are not the preset's: "
    assert report.notes == (said + "student.optimiser.lr 0.2 (0.1)",)
    assert [line.scale for line in ours(report, "cifar100_vocabulary_size", "K=512")] == ["tiny"]
    assert [line.scale for line in ours(report, "cifar100", "BoWNet")] == ["full"]
    assert ours(paper_report([moved], str(tmp_path), "tiny"), "cifar100", "BoWNet")[0].cells[-1] is None


def test_the_later_of_two_runs_with_one_seed_counts(tmp_path: Path) -> None:
    first = run("a", "cifar100/bownet", {"BoWNet": 1}, *TINY)
    second = replace(run("b", "cifar100/bownet", {"BoWNet": 3}, *TINY), finished="2020-01-09")
    for record in (second, first):
        write_record(str(tmp_path), record)
    records = read_records(str(tmp_path))
    assert [record.run for record in records] == ["a", "b"]
    cell = ours(paper_report(records, str(tmp_path)), "cifar100", "BoWNet")[0].cells[-1]
    assert cell is not None
    assert (cell.value, [one.run for one in cell.runs]) == (3, ["b"])


def test_a_later_run_that_asked_for_less_takes_no_number_away(tmp_path: Path) -> None:
    """cifar100/vocabulary-2048 is cifar100/bownet without few-shot episodes."""
    first = run("a", "cifar100/bownet", {"BoWNet": 50})
    second = run("b", "cifar100/vocabulary-2048", {"BoWNet": 54})
    second = replace(second, rows=[second.rows[0] | {"metrics": {"linear/top1": 54.0}}], finished="2020-01-09")
    third = run("c", "cifar100/bownet", {"BoWNet": 50}, "--evaluators", "knn")
    third = replace(third, rows=[third.rows[0] | {"metrics": {"knn/top1_1": 30.0}}], finished="2020-01-10")
    (line,) = ours(paper_report([first, second, third], str(tmp_path)), "cifar100", "BoWNet")
    told = [(cell.value, cell.spread, [one.run for one in cell.runs]) if cell else None for cell in line.cells]
    assert told == [(25, 0.4, ["a"]), None, None, None, (54, None, ["b"])]


def test_markdown_links_from_cells_to_runs_and_from_there_to_mlflow(tmp_path: Path) -> None:
    """As a reader of Markdown shows it; of one run and of two."""
    records = [run("a", "cifar100/bownet", {"RotNet": 40, "BoWNet": 50}, *TINY)]
    records += [run("b", "cifar100/bownet", {"BoWNet": 54}, *TINY, seed=1)]
    page = markdown(as_markdown(paper_report(records, str(tmp_path))), extensions=["tables"])
    assert '<td style="text-align: right;">40.0 <a href="#run-1">[1]</a></td>' in page
    assert '52.0 ± 25.4 <a href="#run-2">[2]</a></td>' in page  # 12.706 * 2 sqrt(2) / sqrt(2)
    to = "http://127.0.0.1:5000/#/experiments/7/runs"
    assert f'<a id="run-1"></a>1: <a href="{to}/a">a</a></li>' in page
    assert f'<a id="run-2"></a>2: <a href="{to}/a">a</a>, <a href="{to}/b">b</a></li>' in page


def test_what_was_made_otherwise_is_marked(tmp_path: Path) -> None:
    """Of one cell, and of one column; another seed is no difference, and neither is another scale's card."""

    def made(name: str, epochs: int, *settings: str, seed: int = 0, **scores: float) -> Record:
        record = run(name, "cifar100/bownet", scores, *settings, seed=seed)
        card = {"evaluator": "linear", "solver": {"epochs": epochs}, "seeds": {"classifier": seed}}
        return replace(record, rows=[row | {"protocol": {"linear": card}} for row in record.rows])

    records = [made("a", 60, RotNet=40, BoWNet=50), made("b", 60, seed=1, RotNet=42, BoWNet=54)]
    records += [made("c", 5, *TINY, RotNet=10, BoWNet=20)]
    marks = {
        c.mark
        for t in paper_report(records, str(tmp_path)).tables
        for r in t.rows
        for x in r.lines
        for c in x.cells
        if c
    }
    assert marks == {""}
    report = paper_report([*records, made("d", 30, seed=2, BoWNet=55)], str(tmp_path))
    rotnet, bownet = (ours(report, "cifar100", name)[0].cells[-1] for name in ("RotNet", "BoWNet"))
    assert rotnet is not None
    assert bownet is not None
    assert (rotnet.mark, bownet.mark) == ("", "*")
    said = "linear made otherwise than for RotNet with seed 0 (full, cifar100): solver.epochs 30 instead of 60"
    assert f"* {said}" in report.tables[0].notes
    size = report.tables[[t.key for t in paper_tables()].index("cifar100_vocabulary_size")]
    assert f"* {said.replace('RotNet', 'K=2048')}" in size.notes
    assert "53.0 ± 6.6*" in as_html(report)  # 50, 54 and 55: s = sqrt(7), t(2) = 4.303


def test_the_papers_figures_have_one_decimal_at_least() -> None:
    figures = (65.0, 65.6, 100.0, 48.75)
    assert [text(Cell(figure)) for figure in figures] == ["65.0", "65.6", "100.0", "48.75"]


def test_links_lead_to_the_server_that_has_the_run() -> None:
    def to(**where: str) -> str | None:
        return link(Record("r", {}, [], 1.0, {"experiment_id": "7", **where})).address

    assert to(tracking_uri="https://me:***@host:8443/mlflow/") == "https://host:8443/mlflow/#/experiments/7/runs/r"
    assert to(tracking_uri="http://host?token=***") == "http://host/#/experiments/7/runs/r"
    assert to(tracking_uri="sqlite:////tmp/a.db") == to() == "http://127.0.0.1:5000/#/experiments/7/runs/r"
    assert link(Record("r", {}, [], 1.0)).address is None


def test_every_format_names_runs_and_escapes_what_it_is_given(tmp_path: Path) -> None:
    nasty = run("<b>&_1", "cifar100/bownet", {"BoWNet": 50}, *TINY)
    report = paper_report([nasty], str(tmp_path))
    page = as_html(report)
    assert "<b>&_1" not in page
    assert "&lt;b&gt;&amp;_1" in page
    assert 'href="http://127.0.0.1:5000/#/experiments/7/runs/&lt;b&gt;&amp;_1"' in page
    assert page.count("<tr") == page.count("</tr>")
    words = as_markdown(report)
    assert "| BoWNet | paper | 69.1 | 86.3 | 89.2 | 92.4 | 71.5 |" in words
    assert r"25.0 ± 0.4 [\[1\]](#run-1)" in words
    width = {line.count("|") for line in words.split("## ")[1].splitlines() if line.startswith("|")}
    assert len(width) == 1
    source = as_latex(report)
    assert latex_plain("<b>&_1") in source
    assert "69.1" in source
    assert "\\toprule" in source
    assert "& Scale & Data & Seeds & Images seen & Hours \\\\" in source
    tables = [line for line in source.splitlines() if line.startswith("Supervised & paper")]
    assert {line.count("&") for line in tables} == {1 + 5 + 5, 1 + 3 + 5}  # who, columns, and what a line says more
    assert not re.search(r"(?<!\\)[&%#]_", source)
    assert source.count("\\begin{") == source.count("\\end{")


def test_a_record_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.json").write_text('{"run": "x"}')
    with pytest.raises(StoreError, match=r"x\.json: is no record of a run"):
        read_records(str(tmp_path))


def test_cost_comes_from_the_manifests(smoke: dict[str, Any]) -> None:
    root = str(smoke["store"])
    rows = {row["name"]: row["artifacts"]["backbone"] for row in smoke["report"]["rows"]}
    teacher, student = cost_of(root, rows["RotNet"]), cost_of(root, rows["BoWNet"])
    assert isinstance(teacher, Cost)
    assert isinstance(student, Cost)
    assert (teacher.images, student.images) == (240, 240 + 2 * 240)  # one epoch, and two more
    assert 0 < teacher.seconds < student.seconds
    assert cost_of(root, "student/nothing") is None


def run_report(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())


def test_report_as_people_run_it(smoke: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(smoke["store"] / "results", store / "results")
    records = {record.run: record for record in read_records(str(store))}  # other tests run it again
    record = records[smoke["report"]["mlflow"]["run_id"]]
    assert record.rows == smoke["report"]["rows"]
    write_record(str(store), run("cafe", "cifar100/bownet", {"BoWNet": 50}, *TINY))
    done = run_report("--store", store, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert f"{len(records) + 1} finished runs" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"paper.md", "paper.html", "paper.tex"}
    assert all("cafe" in path.read_text() for path in (tmp_path / "out").iterdir())
    (tmp_path / "file").write_text("")
    refused = run_report("--store", store, "--output", tmp_path / "file")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is a file, name a folder" in refused.stderr


@pytest.mark.parametrize("study", [[], ["findings"]])
def test_a_store_without_runs_is_refused(study: list[str], tmp_path: Path) -> None:
    refused = run_report(*study, "--store", tmp_path / "nowhere", "--output", tmp_path / "out")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: store={tmp_path / 'nowhere'}: holds no finished run; ")
    assert not list(tmp_path.iterdir()), "nothing is written"
