"""What all benchmarks share: two functions go in, the ratio of their times comes out, with its spread and its bar.

Both sides run in one process with the same number of threads, in turns, so that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from pipelines.machine import WORKER_VARIABLES, Machine, Resources, connect, survey


@dataclass(frozen=True)
class Result:
    """`ratio` is how many times faster we are; `ours` and `other` are median seconds per call."""

    name: str
    ratio: float
    bar: float
    met: bool
    ours: float
    other: float
    spread: tuple[float, float]
    """Half of all pairs of neighbouring measurements have a ratio in this range."""
    unit: str = "s"  # of `ours` and `other`


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(
    name: str,
    ours: Callable[[], object],
    other: Callable[[], object],
    bar: float,
    threads: int = 1,
    repeats: int = 25,
    seconds: float = 0.05,
) -> Result:
    """Time both in turns, `repeats` times for about `seconds` each. The ratio is the median over the pairs.

    Many short turns bear a busy machine better than few long ones: a disturbance spoils one pair, or both its sides.
    """
    with pinned_threads(threads):
        first = [_time(side, 3 if seconds else 1) for side in (ours, other)]  # warms up, too
        calls = [max(1, round(seconds / max(once, 1e-6))) for once in first]
        pairs = []
        for i in range(repeats):
            sides = ((ours, calls[0]), (other, calls[1]))
            times = [_time(*side) for side in (sides if i % 2 == 0 else sides[::-1])]
            pairs.append(times if i % 2 == 0 else times[::-1])
    return paired(name, pairs, bar)


def paired(name: str, pairs: Sequence[Sequence[float]], bar: float) -> Result:
    """Of seconds that ours took and the other took, measured side by side."""
    ratios = [b / a for a, b in pairs]
    ratio = statistics.median(ratios)
    quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return Result(
        name=name,
        ratio=ratio,
        bar=bar,
        met=ratio >= bar,
        ours=statistics.median(a for a, _ in pairs),
        other=statistics.median(b for _, b in pairs),
        spread=(quartiles[0], quartiles[2]),
    )


Section = Callable[[bool], Sequence[Result]]  # measures, at the smallest size if asked to


def main(
    description: str | None,
    sections: dict[str, Section],
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    given: argparse.Namespace | None = None,
) -> None:
    """The program around benchmarks: prints a table, and writes --json after each section. Ratios never make it fail.

    A section that fails is told, and the others go on; at the end it exits with 1. `options` adds some of its own to
    the command line; their values go into `given`.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(sections), help="sections, by commas (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="the smallest size, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    if options:
        options(parser)
    arguments = parser.parse_args(namespace=given)
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in sections]:
        parser.error(f"--only {unknown[0]}: there are {', '.join(sections)}")
    run_as_worker()
    results: list[Result] = []
    of_section: list[str] = []
    failed = []
    for name in names:
        try:
            found = sections[name](arguments.small)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        results += found
        of_section += [name] * len(found)
        if arguments.json:
            write(results, of_section, arguments.json)
    print(table(results))
    if failed:
        print(f"failed, see above: {', '.join(failed)}", flush=True)
        sys.exit(1)


def on_ray(
    measure: Callable[[bool, Machine], Sequence[Result]], object_store: int | None = None, cpus: int | None = None
) -> Callable[[bool], Sequence[Result]]:
    """A section that needs a local Ray of its own, which may be told to have more CPUs than there are."""

    def run(small: bool) -> Sequence[Result]:
        import ray

        connect(object_store_memory=object_store, cpus=cpus)
        try:
            return measure(small, survey(Resources()))
        finally:
            ray.shutdown()

    return run


def run_as_worker() -> None:
    """Start this program again with the variables of our training workers, unless it has them, for both sides alike.

    Again, because malloc reads its own at the start only. Without them page faults and spinning threads are measured.
    """
    if any(os.environ.get(name) != value for name, value in WORKER_VARIABLES.items()):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | WORKER_VARIABLES)


def write(results: Sequence[Result], sections: Sequence[str], path: Path) -> None:
    """The results with their sections, to a file of JSON."""
    rows = [{**asdict(result), "section": section} for result, section in zip(results, sections, strict=True)]
    path.write_text(json.dumps({"results": rows, "machine": machine(), "commit": commit()}, indent=2) + "\n")


def table(results: Sequence[Result]) -> str:
    width = max([len(r.name) for r in results], default=4)
    lines = [f"{'name':{width}}  {'ratio':>7}  {'spread':>13}  {'bar':>5}  met  {'ours':>10}  {'other':>10}"]
    for r in results:
        spread = f"{r.spread[0]:.2f}–{r.spread[1]:.2f}"
        sides = [f"{1e3 * side:7.2f} ms" if r.unit == "s" else f"{side:.5g}" for side in (r.ours, r.other)]
        lines.append(
            f"{r.name:{width}}  {r.ratio:7.3g}  {spread:>13}  {r.bar:5.3g}  {'yes' if r.met else 'NO ':3}"
            f"  {sides[0]:>10}  {sides[1]:>10}"
        )
    return "\n".join(lines)


def machine() -> dict[str, str | int | float]:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count() or 0,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
    }


def commit() -> str:
    """The commit that was measured; `+` where files differ from it."""
    root = Path(__file__).resolve().parent
    try:
        head = _git("rev-parse", "HEAD", folder=root)
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no", folder=root) else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str, folder: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _time(function: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - started) / calls
