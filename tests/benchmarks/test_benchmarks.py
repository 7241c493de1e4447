"""Each benchmark runs at its smallest size, as a program; what ratios such a run gives is not looked at."""

import importlib
import json
import re
import select
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest
import torch

from benchmarks import suite
from benchmarks.growth import Growth
from benchmarks.harness import compare, table
from benchmarks.programs import Spent, as_in_a_new_terminal, idle_part, run
from benchmarks.sides import THREADS, Side, in_turns
from bownet.config import Fewshot
from evaluation.episodes import seeded_episodes
from pipelines.machine import WORKER_VARIABLES

ROOT = Path(__file__).parents[2]


def runs_and_writes_json(program: str, section: str, file: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / program), "--small", "--only", section, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    assert written.keys() == {"results", "machine", "commit"}
    for result in written["results"]:
        assert result.keys() == {"name", "ratio", "bar", "met", "ours", "other", "spread", "unit", "section"}
        assert result["section"] == section
        assert result["met"] == (result["ratio"] >= result["bar"])
        assert result["name"] in done.stdout


@pytest.mark.parametrize(
    ("program", "section"),
    [("input.py", "perturb"), ("input.py", "train"), ("evaluation.py", "fewshot"), ("evaluation.py", "linear")],
)
def test_it_runs_and_writes_json(program: str, section: str, tmp_path: Path) -> None:
    runs_and_writes_json(program, section, tmp_path / "r.json")


def test_the_model_of_large_clusters(tmp_path: Path) -> None:
    """One GPU has nobody to wait for; k-means takes as many as pay; a batch is the most that workers can share."""
    file = tmp_path / "r.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--gpus", "1,8,512", "--decode", "400"]
    done = subprocess.run([*command, "--json", str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    costs = {(c["stage"].split()[0], c["gpus"]): c for c in json.loads(file.read_text())["costs"]}
    assert costs["BoWNet", 1]["bottleneck"] == "compute"
    assert costs["BoWNet", 1]["seconds"] == pytest.approx(140 * 5005 * (256 / 2500 + 0.004), rel=0.01)
    assert costs["BoWNet", 8]["seconds"] < costs["BoWNet", 1]["seconds"] / 6
    assert costs["BoWNet", 512]["bottleneck"] == "batch"
    assert costs["k-means", 8]["stage"] == "k-means (8 GPUs)"
    assert costs["k-means", 512]["stage"] == "k-means (11 GPUs)"


def test_the_model_of_large_clusters_gives_what_its_page_says() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    (command,) = re.findall(r"^`python (benchmarks/scale\.py --decode .+)`:$", page, re.MULTILINE)
    done = subprocess.run([sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, timeout=300)
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 7 * 3
    assert "\n".join(rows) in page
    hours = re.findall(r"([\d.]+) hours$", done.stdout, re.MULTILINE)
    assert re.search("{} hours on 8 GPUs,\\s{} on 64, {} on 512".format(*hours), page)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "section"),
    [
        ("input.py", "shard"),
        ("input.py", "stream"),
        ("words.py", "kmeans"),
        ("words.py", "minibatch"),
        ("words.py", "quantise"),
        ("words.py", "targets"),
        ("train.py", "worker"),
        ("train.py", "workers"),
        ("train.py", "bow"),
        ("evaluation.py", "svm"),
        ("evaluation.py", "voc_ap"),
        ("sweep.py", "task"),
        ("pipeline.py", "whole"),
        ("startup.py", "cached"),
        ("startup.py", "idle"),
        ("startup.py", "cached_short"),
        ("against_peers.py", "clusters"),
        ("against_peers.py", "clusters_short"),
        ("evaluation.py", "linear_short"),
        ("input.py", "kornia"),
    ],
)
def test_it_runs_slowly(program: str, section: str, tmp_path: Path) -> None:
    runs_and_writes_json(program, section, tmp_path / "r.json")


def test_a_ratio_is_how_many_times_faster_ours_is() -> None:
    from time import sleep

    result = compare("sleep", lambda: sleep(0.001), lambda: sleep(0.01), bar=5, repeats=5, seconds=0.01)
    assert 4 < result.ratio < 11
    assert 0.0009 < result.ours < 0.004
    assert "sleep" in table([result])


def row(name: str, ratio: float, bar: float = 1.0, section: str = "all", program: str = "a.py") -> dict[str, Any]:
    about = {"met": ratio >= bar, "spread": [ratio, ratio], "program": program, "section": section}
    return {"name": name, "ratio": ratio, "bar": bar, **about}


def test_a_ratio_that_falls_is_told_and_what_was_not_measured_is_kept() -> None:
    recorded = [row("fast", 10.0), row("steady", 2.0), row("points", 0.5, -0.3), row("elsewhere", 7.0, section="other")]
    measured = [row("fast", 8.4), row("steady", 1.75), row("points", -0.2, -0.3), row("new", 1.0)]
    assert suite.fallen(measured, recorded) == ["WARNING: fast: 8.4, recorded 10"]
    both = suite.kept(measured, recorded)
    assert [(one["name"], one["ratio"]) for one in both] == [
        ("fast", 8.4),
        ("steady", 1.75),
        ("points", -0.2),
        ("elsewhere", 7.0),
        ("new", 1.0),
    ]
    assert "| fast | 8.4 | 8.4–8.4 | 1 | yes | `a.py` |" in suite.markdown(both)


def test_a_row_that_its_section_no_longer_has_is_dropped() -> None:
    """One of another section, program, or of a section that was left out stays."""
    recorded = [row("old name", 1.0), row("peer", 2.0, section="left out"), row("far", 3.0, program="b.py")]
    assert [one["name"] for one in suite.kept([row("new name", 1.0)], recorded)] == ["peer", "far", "new name"]
    assert suite.kept([], recorded) == recorded


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from benchmarks.harness import main, paired

def bad(small):
    raise ValueError("no such thing")

main(None, {{"bad": bad, "good": lambda small: [paired({name!r}, [(1.0, 2.0)], 3)]}})
"""


def test_a_section_that_fails_costs_no_other_and_a_program_that_fails_none_of_the_last(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PROGRAM.format(root=str(ROOT), name="half"))
    (tmp_path / "b.py").write_text("raise SystemExit(3)")
    rows, code = suite.run(suite.Part("a.py", "good"), (), False, tmp_path)
    assert (code, [one["name"] for one in rows]) == (0, ["half"])  # its bar is not met: that is no failure
    rows, code = suite.run(suite.Part("a.py", "bad,good"), (), False, tmp_path)
    assert code == 1
    assert [(one["name"], one["ratio"], one["section"], one["program"]) for one in rows] == [
        ("half", 2, "good", "a.py")
    ]
    assert rows[0].keys() >= {"commit", "machine"}
    assert suite.run(suite.Part("b.py", "good"), (), False, tmp_path) == ([], 3)


def test_some_programs_and_some_sections_are_chosen() -> None:
    parts = (suite.Part("a.py", "x,y"), suite.Part("b.py", "z"), suite.Part("a.py", "w"))
    assert suite.chosen(parts, None) == [*parts]
    assert suite.chosen(parts, ["a.py"]) == [parts[0], parts[2]]
    assert suite.chosen(parts, ["b.py", "a.py:w,y"]) == [parts[1], suite.Part("a.py", "y"), parts[2]]
    with pytest.raises(ValueError, match=r"^--programs c.py: unknown; there are a.py, b.py$"):
        suite.chosen(parts, ["c.py"])
    with pytest.raises(ValueError, match=r"^--programs a.py:z: no section z; there are x, y, w$"):
        suite.chosen(parts, ["a.py:z"])


def test_the_suite_fails_where_a_program_does_and_has_no_rows_of_it(tmp_path: Path) -> None:
    """A whole suite of one program, which does not know an option: what is recorded of it stays."""
    suite_py = [sys.executable, str(ROOT / "benchmarks" / "suite.py"), "--out", str(tmp_path)]
    chosen = ["--programs", "against_peers.py", "--full", "--small", "--nothing-like-it"]
    done = subprocess.run([*suite_py, *chosen], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "against_peers.py: ended with 2" in done.stdout
    assert "failed: against_peers.py" in done.stdout
    recorded = json.loads(suite.RESULTS.read_text())["results"]
    assert json.loads((tmp_path / "results.json").read_text())["results"] == recorded


def test_small_sizes_are_not_recorded() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "suite.py"), "--small"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "add --check, or --out another folder" in done.stderr


def test_every_recorded_row_says_where_it_is_from() -> None:
    recorded = json.loads(suite.RESULTS.read_text())["results"]
    sections = {(part.program, name) for part in (*suite.FULL, *suite.SHORT) for name in part.sections.split(",")}
    assert len({one["name"] for one in recorded}) == len(recorded)
    for one in recorded:
        assert (one["program"], one["section"]) in sections, one["name"]
        assert one["commit"], one["name"]


def test_the_suite_has_every_section() -> None:
    """What a program can measure is in one of the two sets, and each peer or part in the long one."""
    parts = (*suite.FULL, *suite.SHORT)
    for program in {part.program for part in parts}:
        listed = {name for part in parts if part.program == program for name in part.sections.split(",")}
        module = importlib.import_module(f"benchmarks.{program.removesuffix('.py')}")
        assert listed == module.SECTIONS.keys(), program


def test_a_side_takes_its_turns_and_a_broken_one_tells_why(tmp_path: Path) -> None:
    file = tmp_path / "episodes.pt"
    labels = torch.arange(4).repeat(30)
    features = torch.nn.functional.one_hot(labels, 8).float()
    episodes = [tuple(seeded_episodes(labels, 1, Fewshot(shots=(1,), ways=3, queries=2, episodes=5)))]
    torch.save({"features": features, "labels": labels, "episodes": episodes}, file)
    pairs, results = in_turns(Side("episodes", file), Side("episodes", file), 2)
    assert results == ([100.0], [100.0])
    assert len(pairs) == 2
    assert all(seconds > 0 for pair in pairs for seconds in pair)
    with pytest.raises(AssertionError, match="No such file"), Side("episodes", tmp_path / "nothing.pt"):
        pass


def test_a_peer_is_not_given_our_settings(tmp_path: Path) -> None:
    """Threads are the same on both sides; malloc and more are set for our own process alone."""
    ours, other = Side("episodes", "x", threads=2), Side("episodes", "x", python=sys.executable, threads=2)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WORKER_VARIABLES.items():  # as in a program that has started itself again
            patch.setenv(name, value)
        assert ours.variables().items() >= WORKER_VARIABLES.items()
        assert not other.variables().keys() & WORKER_VARIABLES.keys()
        assert not as_in_a_new_terminal().keys() & WORKER_VARIABLES.keys()
    for side in (ours, other):
        assert {side.variables()[name] for name in THREADS} == {"2"}


BUSY = "t = __import__('time'); end = t.process_time() + {}\nwhile t.process_time() < end: pass"


def test_idle_is_when_no_process_of_a_program_computes() -> None:
    seconds, part = idle_part([sys.executable, "-c", f"import time; time.sleep(2)\n{BUSY.format(0.5)}"])
    assert part * seconds > 1.7  # on a machine that others use it also waits for them
    assert part < 1
    with pytest.raises(AssertionError, match="ValueError: why"):
        run([sys.executable, "-c", "raise ValueError('why')"])


def test_processes_that_end_between_two_looks_count() -> None:
    """Ten children, one after the other, of 0.1 s each and what Python needs to start."""
    many = f"import subprocess, sys\nfor _ in range(10): subprocess.run([sys.executable, '-Sc', {BUSY.format(0.1)!r}])"
    with psutil.Popen(
        [sys.executable, "-c", f"{many}\nprint(flush=True); input()"], stdin=PIPE, stdout=PIPE
    ) as program:
        spent, before = 0.0, Spent(program)
        while not select.select([program.stdout], [], [], 0.25)[0]:
            now = before.again()
            spent, before = spent + now.since(before), now
        spent += before.again().since(before)
        assert 1 <= spent < 2
        assert program.stdin is not None
        program.stdin.write(b"\n")


def test_what_ended_between_two_looks_is_counted_once() -> None:
    """A parent of 1 s of its own; a child that had 5 s ends with 5.5 s, which the parent then has seen end."""
    parent: Any = object()
    child: Any = object()
    before, now, alone = (Spent.__new__(Spent) for _ in range(3))
    before.own, before.of_ended = {parent: 1.0, child: 5.0}, {parent: 0.0, child: 0.0}
    now.own, now.of_ended = {parent: 1.25}, {parent: 5.5}
    assert now.since(before) == pytest.approx(0.75)
    alone.own, alone.of_ended = {parent: 1.25}, {parent: 0.0}  # a parent that does not ask how its children end
    assert alone.since(before) == pytest.approx(0.25)


def test_growth_has_exponents_and_a_figure(tmp_path: Path) -> None:
    assert Growth("squares", (1, 2, 4, 8), (5.0, 4.0, 16.0, 64.0)).exponent == pytest.approx(2)
    file, figure = tmp_path / "growth.json", tmp_path / "growth.png"
    command = [sys.executable, str(ROOT / "benchmarks" / "growth.py"), "--small", "--only", "taps,dimensions"]
    done = subprocess.run(
        [*command, "--json", str(file), "--figure", str(figure)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(file.read_text())["growth"]] == [
        "linear classifiers, by taps",
        "nearest words, by dimensions",
    ]
    assert figure.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_growth_on_nodes_starts_from_any_folder(tmp_path: Path) -> None:
    """Workers are sent what they cannot import there; all node counts are started with the same variables."""
    command = [sys.executable, str(ROOT / "benchmarks" / "growth.py"), "--small", "--only", "workers"]
    done = subprocess.run(
        [*command, "--json", "growth.json"], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (one,) = json.loads((tmp_path / "growth.json").read_text())["growth"]
    assert one["sizes"] == [1, 2, 4]


def test_a_peer_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    program = str(ROOT / "benchmarks" / "against_peers.py")
    command = [sys.executable, program, "--small", "--only", "obow_fewshot,lightly", "--lightly-python", "/bin/false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "obow: left out, --obow is not given" in done.stdout
    assert "lightly: left out, /bin/false cannot import lightly" in done.stdout


def test_an_unknown_section_is_told(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "input.py"), "--only", "shards"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "there are perturb, kornia, shard, train, stream" in done.stderr


def test_pages_show_what_is_recorded() -> None:
    recorded = json.loads(suite.RESULTS.read_text())["results"]
    shown = "\n".join(page.read_text() for page in suite.PAGES)
    assert {name for mark in suite.MARK.findall(shown) for name in mark[1].split()} == {p.program for p in suite.FULL}
    for page in suite.PAGES:
        assert suite.filled(page.read_text(), recorded) == page.read_text(), page
