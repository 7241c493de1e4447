"""Turning CIFAR-10 Parquet into shards: our images stage against a bare pool of PIL and numpy on the same cores."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from benchmarks.harness import Result, compare
from bownet.config import Data
from pipelines.machine import Machine
from pipelines.stages.images import Images
from pipelines.store import Store

CIFAR = Path(__file__).resolve().parents[2] / "shared" / "data" / "cifar10"


def measure(small: bool, machine: Machine, cifar: Path = CIFAR) -> list[Result]:
    if not cifar.is_dir():
        print(f"sharding: skipped, no CIFAR-10 Parquet in {cifar}")
        return []
    cores = os.cpu_count() or 1
    count = 2_000 if small else 20_000
    data = Data(kind="parquet", path=str(cifar), train=count, test=1)
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(cores) as pool:
        runs = iter(range(10_000))

        def ours() -> None:
            root = Path(folder) / str(next(runs))
            Store(root, machine=machine).get(Images(data))
            shutil.rmtree(root)

        def bare() -> None:
            root = Path(folder) / str(next(runs))
            root.mkdir()
            tasks = [(cifar, start, min(start + 1000, count), root) for start in range(0, count, 1000)]
            pool.starmap(decode_rows, tasks, chunksize=1)
            shutil.rmtree(root)

        name = f"sharding {count} CIFAR-10 images, bare pool / ours"
        return [compare(name, ours, bare, bar=0.8, threads=1, repeats=2 if small else 9, seconds=0)]


def decode_rows(cifar: Path, start: int, stop: int, root: Path) -> None:
    """The bare loop: read rows, decode, stack, save."""
    images, labels, seen = [], [], 0
    for path in sorted(cifar.rglob("*train*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if seen < stop and seen + rows > start:
                table = file.read_row_group(group, use_threads=False).slice(max(0, start - seen), stop - seen)
                for row in table.to_pylist():
                    images.append(np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")))
                    labels.append(row["label"])
            seen += rows
    np.save(root / f"{start}.images.npy", np.stack(images))
    np.save(root / f"{start}.labels.npy", np.array(labels))
