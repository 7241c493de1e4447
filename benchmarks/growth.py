"""How cost grows with images, words, dimensions, workers, taps, episodes and rounds: times, fitted exponents, a figure.

python benchmarks/growth.py --json FILE --figure growth.png      twelve minutes; --only images,words,... chooses
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

import numpy as np
import torch

from benchmarks import programs
from benchmarks.harness import commit, machine, run_as_worker
from benchmarks.words import TAP, words_of_shard
from bownet.config import Fewshot, Linear
from bownet.words.kmeans import ArraySource
from bownet.words.nearest import nearest_index
from bownet.words.vocabulary_file import Vocabulary
from evaluation.fewshot import fewshot_accuracies
from evaluation.linear import linear_score
from pipelines.machine import Resources, connect, set_variables, survey
from pipelines.stages.shards import for_each_shard
from pipelines.store import Folder

CORES = os.cpu_count() or 1
# Of each five or six, of which the larger three decide; all together in twelve minutes on two cores.
IMAGES = (1000, 2000, 5000, 10_000, 20_000, 50_000)
WORDS = (256, 512, 1024, 4096, 8192, 20_000)
DIMENSIONS = (64, 128, 256, 512, 1024, 2048)
EPISODES = (250, 1000, 2000, 4000, 8000, 16_000)
TAPS = (1, 2, 3, 4, 6, 8)
ROUNDS = (1, 2, 3, 4, 6)


@dataclass(frozen=True)
class Growth:
    """Seconds at each size, and the exponent of the power of the size that fits them best."""

    name: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """Least squares on logarithms, of the larger half: what is fixed, such as a start, hides in the smaller one."""
        half = max(2, (len(self.sizes) + 1) // 2)
        x, y = (np.log(np.array(values[-half:])) for values in (self.sizes, self.seconds))
        return float(np.polyfit(x, y, 1)[0])


def grown(name: str, sizes: Sequence[float], run: Callable[[int], Callable[[], object]], repeats: int = 3) -> Growth:
    """The least of some times at each size; `run` prepares a size and gives what is timed. The first call warms up.

    What is timed once is warmed up by the smallest size.
    """
    seconds = []
    for size in sizes:
        work = run(int(size))
        if repeats > 1 or not seconds:
            work()
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
        seconds.append(min(times))
        print(f"{name}: {size:g}, {seconds[-1]:.3f} s", flush=True)
    return Growth(name, tuple(map(float, sizes)), tuple(seconds))


@contextmanager
def nodes(count: int) -> Iterator[None]:
    """A Ray of this many nodes with one CPU each, all on this machine, and all started as ours are."""
    import ray
    import ray.cloudpickle
    from ray.cluster_utils import Cluster

    import benchmarks.words

    ray.cloudpickle.register_pickle_by_value(benchmarks.words)  # wherever this was started, workers do not find it
    before = dict(os.environ)
    set_variables(is_local=False)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(count - 1):
        cluster.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        connect()
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def quantise(shards: int, folder: Folder, each: int = 500) -> Callable[[], object]:
    """Teacher and nearest words of shards of 500 images, over the CPUs of the Ray that is running."""
    file = Path(folder.path("vocabulary.safetensors"))
    if not file.exists():
        rng = torch.Generator().manual_seed(0)
        Vocabulary(torch.rand(512, 256, generator=rng), "growth", TAP).save(file)
        folder.write_npy("pixels.npy", np.random.default_rng(0).integers(256, size=(each, 32, 32, 3), dtype=np.uint8))
    rows = [{"pixels": "pixels.npy"} for _ in range(shards)]
    here = survey(Resources())
    return lambda: for_each_shard(rows, partial(words_of_shard, folder=folder, file=file), here)


def images(small: bool) -> list[Growth]:
    sizes = (1000, 2000) if small else IMAGES
    with tempfile.TemporaryDirectory() as path, nodes(CORES):
        return [grown("words of images, over Ray", sizes, lambda n: quantise(n // 500, Folder(path)), 1)]


def workers(small: bool) -> list[Growth]:
    """On nodes of one CPU. More of them than there are cores show what they cost, not what they gain."""
    shards, found = 4 if small else 16, []
    with tempfile.TemporaryDirectory() as path:
        for count in (1, 2, 4):
            with nodes(count):
                name = f"words of {shards * 500} images, by nodes"
                found.append(grown(name, [count], lambda _: quantise(shards, Folder(path)), 1))
    return [Growth(found[0].name, *(tuple(getattr(one, of)[0] for one in found) for of in ("sizes", "seconds")))]


def words(small: bool) -> list[Growth]:
    """Each time with a source that remembers nothing: the first iteration, which no guess makes cheaper."""
    n, sizes = (2000, (16, 64)) if small else (50_000, WORDS)
    x = torch.rand(n, 128, generator=torch.Generator().manual_seed(0))
    first = grown("an iteration of k-means, by words", sizes, lambda k: lambda: ArraySource(x).assign(x[:k]))
    second = grown("nearest words, by words", sizes, lambda k: partial(nearest_index, x, x[:k]))
    return [first, second]


def dimensions(small: bool) -> list[Growth]:
    n, sizes = (2000, (32, 64)) if small else (50_000, DIMENSIONS)
    rng = torch.Generator().manual_seed(0)

    def run(d: int) -> Callable[[], object]:
        x = torch.rand(n, d, generator=rng)
        return partial(nearest_index, x, x[:512])

    return [grown("nearest words, by dimensions", sizes, run)]


def taps(small: bool) -> list[Growth]:
    n, config = (500, Linear(epochs=1)) if small else (10_000, Linear(epochs=40))
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(n, 256, generator=rng), torch.arange(n) % 10

    def run(count: int) -> Callable[[], object]:
        features = {f"tap{i}": (x, x[:1000]) for i in range(count)}
        return lambda: linear_score(features, y, y[:1000], config, 0)

    return [grown("linear classifiers, by taps", (1, 2, 4) if small else TAPS, run)]


def episodes(small: bool) -> list[Growth]:
    sizes = (20, 40) if small else EPISODES
    labels = torch.arange(20).repeat(100)
    x = torch.rand(2000, 640, generator=torch.Generator().manual_seed(0))
    return [grown("few-shot, by episodes", sizes, lambda n: lambda: fewshot_accuracies(x, labels, Fewshot(episodes=n)))]


def rounds(small: bool) -> list[Growth]:
    """Whole programs, each on a new store, so that what does not grow, start and base teacher, is in all of them."""
    seconds, sizes = [], (1, 2) if small else ROUNDS
    for count in sizes:
        with tempfile.TemporaryDirectory() as store:
            command = [sys.executable, "pipelines/full.py", "smoke", "--store", store, "--no-figures"]
            seconds.append(programs.run([*command, "--rounds", str(count)]).seconds)
            print(f"rounds: {count}, {seconds[-1]:.1f} s", flush=True)
    return [Growth("full.py smoke, by rounds", tuple(map(float, sizes)), tuple(seconds))]


SECTIONS: dict[str, Callable[[bool], list[Growth]]] = {
    "images": images,
    "workers": workers,
    "words": words,
    "dimensions": dimensions,
    "taps": taps,
    "episodes": episodes,
    "rounds": rounds,
}


def table(found: Sequence[Growth]) -> str:
    lines = ["| what | sizes | seconds | exponent |", "| --- | --- | --- | --- |"]
    for one in found:
        sizes, seconds = (
            ", ".join(f"{v:.3g}" if v < 1000 else f"{v:.0f}" for v in w) for w in (one.sizes, one.seconds)
        )
        lines.append(f"| {one.name} | {sizes} | {seconds} | {one.exponent:.2f} |")
    return "\n".join(lines)


def draw(found: Sequence[Growth], path: Path) -> None:
    """Times relative to the smallest size; a straight line of slope one is linear growth."""
    from matplotlib.figure import Figure

    from pipelines.drawing.style import CYCLE, DPI, GREY, MARKERS

    figure = Figure(figsize=(7, 4.4), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    for i, one in enumerate(found):
        x, y = (np.array(values) / values[0] for values in (one.sizes, one.seconds))
        label = f"{one.name} ({one.exponent:.2f})"
        line = "-" if i < len(CYCLE) else ":"
        axes.loglog(x, y, line, color=CYCLE[i % len(CYCLE)], marker=MARKERS[i % len(MARKERS)], label=label)
    most = max(one.sizes[-1] / one.sizes[0] for one in found)
    axes.loglog([1, most], [1, most], color=GREY, linestyle="--", linewidth=1, label="linear")
    axes.set(xlabel="size, times the smallest", ylabel="time, times that of the smallest", title="How cost grows")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, by commas (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="the smallest size, to see that it runs")
    parser.add_argument("--json", type=Path, help="write sizes, seconds and exponents to this file")
    parser.add_argument("--figure", type=Path, help="draw them into this file")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"--only {unknown[0]}: there are {', '.join(SECTIONS)}")
    run_as_worker()
    torch.set_num_threads(CORES)
    found: list[Growth] = []
    for name in names:
        started = time.perf_counter()
        found += SECTIONS[name](arguments.small)
        print(f"{name}: {time.perf_counter() - started:.0f} s in all", flush=True)
        if arguments.json:
            said = [{**asdict(one), "exponent": one.exponent} for one in found]
            about = {"machine": machine(), "commit": commit()}
            arguments.json.write_text(json.dumps({"growth": said, **about}, indent=1) + "\n")
    print(table(found))
    if arguments.figure:
        draw(found, arguments.figure)


if __name__ == "__main__":
    main()
