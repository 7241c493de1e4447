"""Visual words, as ratios in one run: k-means against faiss, scikit-learn and its bare product; quantisation; targets.

python benchmarks/words.py --json FILE      20 minutes; --only kmeans,minibatch,quantise,targets chooses
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

from benchmarks.harness import Result, Section, compare, main, on_ray, pinned_threads
from benchmarks.sharding import CIFAR
from bownet.config import Data, Net, Student
from bownet.nets.build import build_backbone
from bownet.nets.taps import freeze
from bownet.tasks.bow import BowTask
from bownet.words.bow import bow_targets
from bownet.words.kmeans import State, sample_rows
from bownet.words.kmeans import kmeans as lloyd
from bownet.words.vocabulary import feature_maps, sample_vectors
from bownet.words.vocabulary_file import Vocabulary
from pipelines.machine import Machine
from pipelines.stages.clustering import RaySource, Vectors
from pipelines.stages.images import Images
from pipelines.stages.pictures import load_split
from pipelines.stages.shards import Row, for_each_shard
from pipelines.store import Folder, Store

ARCH, TAP, CHANNELS, PER_IMAGE = "wrn-10-4", "block3", 256, 15


def teacher() -> Any:
    """Untrained, but of real images: the features of a wide ResNet of 256 channels."""
    return freeze(build_backbone(Net(arch=ARCH), 0))


def extract(row: Row, folder: Folder) -> Row:
    pixels = torch.from_numpy(np.array(folder.read_npy(row["pixels"])))
    vectors = sample_vectors(feature_maps(teacher(), pixels, TAP), PER_IMAGE, 0, row["start"])
    folder.write_npy(row["name"], vectors.numpy())
    return {"name": row["name"]}


def real_vectors(images: int, folder: Folder, machine: Machine) -> Vectors:
    """`images` x 15 feature vectors of CIFAR-10, or of scenes where it is not there."""
    source = {"kind": "parquet", "path": str(CIFAR)} if CIFAR.is_dir() else {"kind": "scenes"}
    data = Data.model_validate(source | {"train": images, "test": 1, "novel_per_class": 1})
    pixels = load_split(Store(folder.path("store"), machine=machine).get(Images(data)), "train")
    rows: list[Row] = []
    for i, part in enumerate(np.array_split(pixels, max(2, images // 1000))):
        folder.write_npy(f"{i}.pixels.npy", part)
        start = sum(row["count"] for row in rows)
        rows.append({"pixels": f"{i}.pixels.npy", "name": f"{i}.npy", "start": start, "count": len(part)})
    for_each_shard(rows, partial(extract, folder=folder), machine)
    names = tuple(row["name"] for row in rows)
    return Vectors(folder, names, tuple(row["count"] * PER_IMAGE for row in rows), CHANNELS)


def kmeans(small: bool, machine: Machine) -> list[Result]:
    """Lloyd's algorithm from the same centroids, for as many iterations, on the same cores."""
    import faiss
    from sklearn.cluster import KMeans

    images, k, iterations, repeats = (200, 64, 2, 2) if small else (20_000, 2048, 20, 2)
    cores = os.cpu_count() or 1
    faiss.omp_set_num_threads(cores)
    with tempfile.TemporaryDirectory() as path:
        vectors = real_vectors(images, Folder(path), machine)
        source = RaySource(vectors, None, machine)
        source.prepare(k)
        centroids = source.sample(k, 0)
        x_ND = vectors.read()
        x, c = x_ND.numpy(), centroids.numpy()
        out = torch.empty(1024, k)
        inertia: dict[str, float] = {}

        def ours() -> None:
            source.assign(centroids[:1])  # of the last run nothing shall be remembered
            start = State(0, centroids)
            found = lloyd(source, k, seed=0, iterations=iterations, tolerance=0, grid=source.grid, state=start)
            inertia["ours"], inertia["ours before the last move"] = found.inertia[-1], found.inertia[-2]

        def by_faiss() -> None:
            points = {"max_points_per_centroid": len(x), "min_points_per_centroid": 1}
            other = faiss.Kmeans(CHANNELS, k, niter=iterations, **points)
            other.train(x, init_centroids=c)
            inertia["faiss"] = float(np.asarray(other.obj)[-1]) / len(x)  # before the last move

        def by_sklearn() -> None:
            other = KMeans(k, init=c, n_init=1, max_iter=iterations, tol=0, algorithm="lloyd", copy_x=False).fit(x)
            inertia["scikit-learn"] = other.inertia_ / len(x)

        def product() -> None:
            transposed = centroids.T.contiguous()
            for _ in range(iterations):
                for rows in x_ND.split(1024):
                    torch.mm(rows, transposed, out=out[: len(rows)])

        size = f"{iterations} iterations of k-means, {len(x)} x {CHANNELS}, K={k}"
        measure = partial(compare, threads=cores, repeats=repeats, seconds=0)
        results = [
            measure(f"{size}: bare products / ours", ours, product, 1 / 1.35),
            measure(f"{size}: scikit-learn / ours", ours, by_sklearn, 1.0),
            measure(f"{size}: faiss / ours", ours, by_faiss, 1 / 0.6),
            same("inertia: scikit-learn / ours", inertia["ours"], inertia["scikit-learn"]),
            same("inertia: faiss / ours", inertia["ours before the last move"], inertia["faiss"]),
        ]
        source.close()
    return results


def same(name: str, ours: float, other: float) -> Result:
    """Not a time: whether what came out is as good, to a thousandth."""
    ratio = other / ours
    return Result(name, ratio, 0.999, ratio >= 0.999, ours, other, (ratio, ratio), unit="mean squared distance")


def minibatch(small: bool, machine: Machine) -> list[Result]:
    """What mini-batches reach in the time that Lloyd's algorithm over all vectors takes. Why we have none of them."""
    from sklearn.cluster import MiniBatchKMeans

    images, k, iterations = (200, 64, 2) if small else (20_000, 2048, 20)
    with tempfile.TemporaryDirectory() as path, pinned_threads(os.cpu_count() or 1):
        vectors = real_vectors(images, Folder(path), machine)
        source = RaySource(vectors, None, machine)
        source.prepare(k)
        centroids = source.sample(k, 0)
        started = time.perf_counter()
        start = State(0, centroids)
        found = lloyd(source, k, seed=0, iterations=iterations, tolerance=0, grid=source.grid, state=start)
        seconds = time.perf_counter() - started

        x, rng = vectors.read().numpy(), np.random.default_rng(0)
        batch = min(len(x), 16 * k)
        other = MiniBatchKMeans(k, init=centroids.numpy(), n_init=1, batch_size=batch, random_state=0)
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            other.partial_fit(x[rng.choice(len(x), batch, replace=False)])
        reached = source.assign(torch.from_numpy(other.cluster_centers_)).inertia(
            torch.from_numpy(other.cluster_centers_)
        )
        source.close()
    name = f"inertia after the time of {iterations} iterations: mini-batches of {batch} / ours"
    return [same(name, found.inertia[-1], reached / len(x))]


def quantise(small: bool, machine: Machine) -> list[Result]:
    """Teacher and nearest word for every position, through Ray Data, against the same loop in a bare pool."""
    images, k, repeats = (200, 64, 2) if small else (4_000, 2048, 5)
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as path, multiprocessing.get_context("spawn").Pool(cores) as pool:
        folder = Folder(path)
        vectors = real_vectors(images, folder, machine)
        vocabulary = Vocabulary(vectors.read_rows(sample_rows(len(vectors), k, 0)), "benchmark", TAP)
        file = Path(path) / "vocabulary.safetensors"
        vocabulary.save(file)
        rows = [{"pixels": name.replace(".npy", ".pixels.npy")} for name in vectors.names]

        def ours() -> None:
            for_each_shard(rows, partial(words_of_shard, folder=folder, file=file), machine)

        def bare() -> None:
            pool.map(partial(words_of_shard, folder=folder, file=file), rows, chunksize=1)

        name = f"quantising {images} images, K={k}, bare pool / ours"
        return [compare(name, ours, bare, 0.92, threads=1, repeats=repeats, seconds=0)]


def words_of_shard(row: Row, folder: Folder, file: Path) -> Row:
    torch.set_num_threads(1)
    pixels = torch.from_numpy(np.array(folder.read_npy(row["pixels"])))
    words = Vocabulary.load(file).assign(feature_maps(teacher(), pixels, TAP))
    return {"sum": int(words.sum())}


def targets(small: bool) -> list[Result]:
    """Bags of words of a batch against the training step that uses them: at least twenty times as fast."""
    words: Tensor = torch.randint(2048, (128, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    student = Student(arch="wrn-16-2")
    task = BowTask(build_backbone(student.net, 0), 2048, student)
    images = torch.randint(256, (128, 32, 32, 3), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        task.zero_grad()
        task(images, words, generator)[0].backward()

    def ours() -> None:
        bow_targets(words, 2048, "count", True)

    name = "bags of words, batch 128, K=2048: training step / targets"
    return [compare(name, ours, step, 20, threads=os.cpu_count() or 1, repeats=3 if small else 15, seconds=0.05)]


SECTIONS: dict[str, Section] = {
    "kmeans": on_ray(kmeans),
    "minibatch": on_ray(minibatch),
    "quantise": on_ray(quantise),
    "targets": targets,
}


if __name__ == "__main__":
    main(__doc__, SECTIONS)
