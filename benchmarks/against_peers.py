"""Against peers, as ratios in one run: same data, network, batch and threads; each with its own Python and checkout.

python benchmarks/against_peers.py --reproduction DIR --obow DIR --solo DIR --fair DIR --python PYTHON --json FILE

--python has the packages of all of them, or each has its own: --obow-python and so on. A peer that is not given is left
out, and said so. Checkouts: StoneY1/Reproducing-BowNet, valeoai/obow, vturrisi/solo-learn,
facebookresearch/fair_self_supervision_benchmark; lightly is a package.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

import torch
from torch import Tensor

from benchmarks.bare_pipeline import read
from benchmarks.fewshot_episodes import CHANNELS, CLASSES, IMAGES
from benchmarks.harness import Result, Section, main, paired
from benchmarks.sharding import CIFAR
from benchmarks.sides import Side, in_turns
from benchmarks.words import PER_IMAGE, TAP, teacher
from bownet.config import Fewshot
from bownet.images.scenes import draw_labelled, labels
from bownet.words.kmeans import cluster
from bownet.words.vocabulary import feature_maps, sample_vectors
from evaluation.episodes import seeded_episodes

CORES = os.cpu_count() or 1
GIVEN = argparse.Namespace()  # what the command line says of peers
CHECKOUTS = ("reproduction", "obow", "solo", "fair")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", default=sys.executable, help="of all peers that have none of their own")
    for name in (*CHECKOUTS, "lightly"):
        if name in CHECKOUTS:
            parser.add_argument(f"--{name}", help=f"folder with the source of {name}")
        parser.add_argument(f"--{name}-python", help=f"Python that has the packages of {name}")


def python_of(name: str) -> str:
    return str(getattr(GIVEN, f"{name}_python") or GIVEN.python)


def with_peer(name: str, package: str, measure: Callable[[str, str, bool], list[Result]]) -> Section:
    """Left out where its checkout is not given, or its Python cannot import what it needs."""

    def section(small: bool) -> list[Result]:
        folder = getattr(GIVEN, name, None) or ""
        if name in CHECKOUTS and not folder:
            print(f"{name}: left out, --{name} is not given")
            return []
        python = python_of(name)
        known = subprocess.run([python, "-c", f"import torch, {package}"], capture_output=True)
        if known.returncode:
            print(f"{name}: left out, {python} cannot import {package}")
            return []
        return measure(folder, python, small)

    return section


def reproduction_step(folder: str, python: str, small: bool) -> list[Result]:
    """In single precision, which is all that it has, and in bfloat16, a setting of ours for CPUs that have it."""
    steps, batch, words, repeats = (1, 32, 64, 1) if small else (4, 128, 2048, 7)
    name, found = f"BoW training, its network, batch {batch}, K={words}: public reproduction / ours", []
    for precision in ("float32", "bfloat16"):
        ours = Side("our_training", folder, steps, batch, words, precision, threads=CORES)
        theirs = Side("reproduction_training", folder, steps, batch, words, python=python, threads=CORES)
        pairs, _ = in_turns(ours, theirs, repeats)
        found.append(paired(name if precision == "float32" else f"{name} in {precision}", pairs, 3))
    return found


def clusters(small: bool, images: int = 14_000, k: int = 2048, repeats: int = 3) -> list[Result]:
    """The reproduction's call of scikit-learn, which needs nothing of its own, against ours with its defaults."""
    from sklearn.cluster import MiniBatchKMeans

    images, k, repeats = (200, 16, 1) if small else (images, k, repeats)
    torch.set_num_threads(CORES)
    x = vectors_of(images)
    pairs, mine, theirs = [], 0.0, 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        found = cluster(x, k, seed=0)
        ours = time.perf_counter() - started
        started = time.perf_counter()
        other = MiniBatchKMeans(n_clusters=k, n_init=10, max_iter=300, batch_size=512, random_state=0).fit(x.numpy())
        pairs.append((ours, time.perf_counter() - started))
        mine, theirs = found.inertia[-1], -other.score(x.numpy()) / len(x)
    ratio = theirs / mine
    name = f"clustering {len(x)} x {x.shape[1]}, K={k}"
    same = Result(f"{name}: its inertia / ours", ratio, 1.0, ratio >= 1, mine, theirs, (ratio, ratio), "mean square")
    return [paired(f"{name}: scikit-learn as the public reproduction calls it / ours", pairs, 1.5), same]


def clusters_short(small: bool) -> list[Result]:
    """30,000 vectors and 512 words, once: `clusters` takes ten minutes."""
    return clusters(small, 2000, 512, 1)


def vectors_of(images: int) -> Tensor:
    """15 feature vectors of each image of CIFAR-10, or of scenes where it is not there, by an untrained network."""
    if CIFAR.is_dir():
        pixels, _ = read(CIFAR, "train", images)
    else:
        pixels = torch.from_numpy(draw_labelled(labels(images, tuple(range(10))), 32, seed=0))
    with torch.inference_mode():
        return sample_vectors(feature_maps(teacher(), pixels, TAP), PER_IMAGE, 0, 0)


def obow_fewshot(folder: str, python: str, small: bool) -> list[Result]:
    config = Fewshot(episodes=20 if small else 2000)
    label_N = torch.arange(CLASSES).repeat(IMAGES)
    generator = torch.Generator().manual_seed(0)
    centre_CD = 0.15 * torch.randn(CLASSES, CHANNELS, generator=generator)
    features = centre_CD[label_N] + torch.randn(len(label_N), CHANNELS, generator=generator)
    episodes = [tuple(seeded_episodes(label_N, shots, config)) for shots in config.shots]
    with tempfile.TemporaryDirectory() as path:
        file = Path(path) / "episodes.pt"
        torch.save({"features": features, "labels": label_N, "episodes": episodes}, file)
        pairs, (mine, theirs) = in_turns(
            Side("episodes", file), Side("episodes", file, folder, python=python), 1 if small else 5
        )
    assert all(abs(a - b) < 0.01 for a, b in zip(mine, theirs, strict=True)), (mine, theirs)
    name = f"{len(config.shots)} x {config.episodes} few-shot episodes, {len(label_N)} x {CHANNELS}: obow / ours"
    return [paired(name, pairs, 10)]


def obow_linear(folder: str, python: str, small: bool) -> list[Result]:
    images, epochs, repeats = (1000, 1, 1) if small else (20_000, 5, 3)
    ours = Side("linear", images, epochs, threads=CORES)
    theirs = Side("linear", images, epochs, folder, python=python, threads=CORES)
    pairs, (mine, other) = in_turns(ours, theirs, repeats)
    more = mine - other
    name = f"linear classifier, {epochs} epochs, {images} cached features"
    same = Result(f"{name}: points more than obow's", more, -1, more >= -1, mine, other, (more, more), "percent")
    return [paired(f"{name}: obow / ours", pairs, 3), same]


def fair_svm(folder: str, python: str, small: bool) -> list[Result]:
    sizes, repeats = ((60, 300, 2), 1) if small else ((600, 9216, 4), 3)
    pairs, (mine, other) = in_turns(Side("svms", *sizes), Side("svms", *sizes, folder, python=python), repeats)
    more = mine - other
    name = f"SVMs of {sizes[2]} classes, {sizes[0]} x {sizes[1]}"
    same = Result(
        f"{name}: points of mAP more than FAIR's", more, -0.5, more >= -0.5, mine, other, (more,) * 2, "percent"
    )
    return [paired(f"{name}, one core: the FAIR benchmark's program / ours", pairs, 2), same]


def training(name: str) -> Callable[[str, str, bool], list[Result]]:
    def measure(folder: str, python: str, small: bool) -> list[Result]:
        steps, batch, words, repeats = (1, 32, 64, 1) if small else (10, 128, 2048, 30)
        sizes = ("wrn-10-1" if small else "wrn-16-2", steps, batch, words)
        checkout = (folder,) if folder else ()
        theirs = Side(f"{name}_training", *checkout, *sizes, python=python, threads=CORES)
        pairs, _ = in_turns(Side("our_training", *sizes, threads=CORES), theirs, repeats)
        return [paired(f"training {sizes[0]}, batch {batch}, one view: {name} / ours", pairs, 1.1)]

    return measure


SECTIONS: dict[str, Section] = {
    "reproduction": with_peer("reproduction", "torchnet, sklearn", reproduction_step),
    "clusters": clusters,
    "clusters_short": clusters_short,
    "obow_fewshot": with_peer("obow", "torchvision", obow_fewshot),
    "obow_linear": with_peer("obow", "torchvision, tqdm", obow_linear),
    "fair_svm": with_peer("fair", "sklearn", fair_svm),
    "lightly": with_peer("lightly", "lightly", training("lightly")),
    "solo": with_peer("solo", "lightning, omegaconf", training("solo")),
}


if __name__ == "__main__":
    main(__doc__, SECTIONS, options, GIVEN)
