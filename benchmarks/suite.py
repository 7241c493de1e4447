"""All benchmarks, one program after the other: a table of ratios as JSON and Markdown, compared with the recorded one.

python benchmarks/suite.py                 the short set: some minutes; writes benchmarks/results.json and results.md
python benchmarks/suite.py --full          the long set: hours. Options that it does not know go to against_peers.py
python benchmarks/suite.py --full --programs train.py evaluation.py:svm      some of it; other rows stay as recorded
python benchmarks/suite.py --check         the short set against what is recorded: warns, writes nothing

README and docs/performance.md show the rows of the programs that a mark names: <!-- measured: train.py -->.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS, TABLE = HERE / "results.json", HERE / "results.md"
PAGES = (HERE.parent / "README.md", HERE.parent / "docs" / "performance.md")
MARK = re.compile(r"(<!-- measured: ([\w. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FALLEN = 0.85  # of the recorded ratio: what is below is told


@dataclass(frozen=True)
class Part:
    program: str
    sections: str


SHORT = (
    Part("input.py", "perturb,kornia,train"),
    Part("words.py", "targets"),
    Part("train.py", "bow"),
    Part("evaluation.py", "fewshot,linear_short"),
    Part("against_peers.py", "clusters_short"),
    Part("startup.py", "cached_short"),
)
FULL = (
    Part("input.py", "perturb,kornia,shard,train,stream"),
    Part("words.py", "kmeans,minibatch,quantise,targets"),
    Part("train.py", "worker"),
    Part("train.py", "workers,bow"),
    Part("evaluation.py", "fewshot,linear,voc_ap"),
    Part("evaluation.py", "svm"),
    Part("sweep.py", "ray_train,task"),
    Part("pipeline.py", "whole"),
    Part("startup.py", "cached,idle"),
    Part("against_peers.py", "reproduction,clusters,obow_fewshot,obow_linear,fair_svm,lightly,solo"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the long set")
    parser.add_argument("--programs", nargs="+", help="only these, or evaluation.py:svm,linear for some sections")
    parser.add_argument("--check", action="store_true", help="compare with what is recorded, and write nothing")
    parser.add_argument("--small", action="store_true", help="the smallest sizes, to see that it runs")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results.json and results.md")
    parser.add_argument("--detectron2-python", help="Python that has detectron2 (default: this one)")
    arguments, of_peers = parser.parse_known_args()
    if arguments.small and arguments.out == HERE and not arguments.check:
        parser.error("--small: its sizes are not those that are recorded; add --check, or --out another folder")
    try:
        parts = chosen(FULL if arguments.full else SHORT, arguments.programs)
    except ValueError as error:
        parser.error(str(error))
    given = {"against_peers.py": of_peers}
    if arguments.detectron2_python:
        given["evaluation.py"] = ["--detectron2-python", arguments.detectron2_python]
    recorded = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    measured: list[dict[str, Any]] = []
    failed: list[str] = []
    try:
        for part in parts:
            print(f"== {part.program} --only {part.sections}", flush=True)
            started = time.perf_counter()
            rows, code = run(part, given.get(part.program, ()), arguments.small)
            print(f"== {part.program}: {time.perf_counter() - started:.0f} s", flush=True)
            measured += rows
            if code:
                print(f"{part.program}: ended with {code}; what it has not measured is as recorded", flush=True)
                failed.append(part.program)
    finally:  # also where it is interrupted; not sooner, as files that differ from the commit are told of each row
        if not arguments.check:
            write(kept(measured, recorded), arguments.out)
    warnings = fallen(measured, recorded)
    for line in warnings:
        print(line)
    if not warnings:
        print(f"no ratio has fallen by more than {1 - FALLEN:.0%} of {len(recorded)} recorded ones")
    if not arguments.check:
        print(f"written: {arguments.out / RESULTS.name}, {arguments.out / TABLE.name}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def chosen(parts: Sequence[Part], programs: Sequence[str] | None) -> list[Part]:
    """Those of the programs that are named, and of these the sections that are named."""
    if programs is None:
        return list(parts)
    found: list[Part] = []
    for name in programs:
        program, _, sections = name.partition(":")
        mine = [part for part in parts if part.program == program]
        known = [section for part in mine for section in part.sections.split(",")]
        wanted = sections.split(",") if sections else known
        if not mine:
            raise ValueError(
                f"--programs {name}: unknown; there are {', '.join(dict.fromkeys(p.program for p in parts))}"
            )
        if unknown := sorted({*wanted} - {*known}):
            raise ValueError(f"--programs {name}: no section {unknown[0]}; there are {', '.join(known)}")
        for part in mine:
            if here := [section for section in part.sections.split(",") if section in wanted]:
                found.append(Part(program, ",".join(here)))
    return found


def run(part: Part, given: Sequence[str], small: bool, folder: Path = HERE) -> tuple[list[dict[str, Any]], int]:
    """What a program has measured, each row with where and of what; and what it ended with. What it prints is seen."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "results.json"
        command = [sys.executable, str(folder / part.program), "--only", part.sections, "--json", str(file), *given]
        command += ["--small"] if small else []
        code = subprocess.run(command).returncode
        found = json.loads(file.read_text()) if file.exists() else {"results": []}
    about = {"program": part.program} | {name: found[name] for name in ("commit", "machine") if name in found}
    return [row | about for row in found["results"]], code


def write(results: Sequence[dict[str, Any]], out: Path) -> None:
    """To JSON and Markdown, and where that is the recorded one, into the pages that show it."""
    (out / RESULTS.name).write_text(json.dumps({"results": results}, indent=1) + "\n")
    (out / TABLE.name).write_text(markdown(results))
    if out == HERE:
        for page in PAGES:
            page.write_text(filled(page.read_text(), results))


def fallen(measured: Sequence[dict[str, Any]], recorded: Sequence[dict[str, Any]]) -> list[str]:
    """Lines about ratios that are much lower than before; differences, such as points of accuracy, have bars only."""
    before = {result["name"]: result["ratio"] for result in recorded}
    lines = []
    for result in measured:
        was = before.get(result["name"])
        if was is not None and was > 0 and result["bar"] > 0 and result["ratio"] < FALLEN * was:
            lines.append(f"WARNING: {result['name']}: {result['ratio']:.3g}, recorded {was:.3g}")
    return lines


def kept(measured: Sequence[dict[str, Any]], recorded: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was measured now in the place of what was recorded under the same name; the rest as it was.

    But for what a section no longer has: where it was measured, its rows of other names have gone. A section that was
    left out or failed keeps its own.
    """
    now = {result["name"]: result for result in measured}
    again = {(result["program"], result["section"]) for result in measured}
    old = [
        now.pop(result["name"], result)
        for result in recorded
        if result["name"] in now or (result["program"], result["section"]) not in again
    ]
    return [*old, *now.values()]


def filled(page: str, results: Sequence[dict[str, Any]]) -> str:
    """The page, with the rows of the programs that its marks name."""

    def rows(mark: re.Match[str]) -> str:
        programs = mark[2].split()
        return f"{mark[1]}\n{markdown([r for r in results if r['program'] in programs])}\n{mark[3]}"

    return MARK.sub(rows, page)


def markdown(results: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| what | ratio | half of the pairs within | bar | met | program |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        low, high = result["spread"]
        met = "yes" if result["met"] else "no"
        lines.append(
            f"| {result['name']} | {result['ratio']:.3g} | {low:.3g}–{high:.3g} | {result['bar']:.3g} | {met} "
            f"| `{result['program']}` |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
