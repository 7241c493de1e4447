"""k-means on Ray: each worker holds a share of the vectors, and gives one fused sum per iteration.

A worker that dies with its node is started elsewhere and reads its share again. Vectors lie on a grid on which sums are
exact, so that neither the number of workers nor such a loss changes a bit of the result. The state is saved on the
way: a new run goes on where the last one stopped.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bownet.config import Vocabulary
from bownet.words.grid import Grid, Survey, grid_for, survey
from bownet.words.kmeans import Clusters, State, kmeans, sample_rows
from bownet.words.nearest import Assigner, Sums
from bownet.words.pca import PCA, fit_pca
from pipelines.machine import Machine
from pipelines.stages.one_task import in_one_task
from pipelines.stages.room import reserve
from pipelines.stages.watch import stalled
from pipelines.store import Folder

CHECKPOINT = "kmeans.pt"
SECONDS_BETWEEN_CHECKPOINTS = 10.0
SMALL_BYTES = 64 << 20  # so many more are worth another worker
GPU_BYTES = 8 << 30  # of vectors that a GPU should hold at most
PCA_SAMPLE = 65_536  # vectors


@dataclass(frozen=True)
class Vectors:
    """Vectors in the files of a folder, one file after the other."""

    folder: Folder
    names: tuple[str, ...]
    lengths: tuple[int, ...]
    channels: int

    def __len__(self) -> int:
        return sum(self.lengths)

    def read(self, pca: PCA | None = None) -> Tensor:
        """All vectors, or their principal components. Holds little besides."""
        out, done = torch.empty(len(self), pca.components if pca else self.channels), 0
        for name, length in zip(self.names, self.lengths, strict=True):
            file = self.folder.read_npy(name)
            for start in range(0, length, 4096):  # in the file, so that the bits do not depend on the shares
                part = torch.from_numpy(np.array(file[start : start + 4096]))
                out[done + start : done + start + len(part)] = pca.transform(part) if pca else part
            done += length
        return out

    def read_rows(self, rows: Tensor) -> Tensor:
        """Vectors of some numbers, in rising order."""
        chosen, done, first = rows.numpy(), 0, 0
        out = np.empty((len(chosen), self.channels), np.float32)
        for name, length in zip(self.names, self.lengths, strict=True):
            stop = done + int(np.searchsorted(chosen[done:], first + length))
            if stop > done:
                out[done:stop] = self.folder.read_npy(name)[chosen[done:stop] - first]
            done, first = stop, first + length
        return torch.from_numpy(out)

    def shares(self, count: int) -> list[tuple[int, Vectors]]:
        """Whole files, about evenly; with the number of each share's first vector."""
        middle = np.cumsum(self.lengths) - np.array(self.lengths) / 2
        of_file = np.minimum((middle * count / max(1, len(self))).astype(int), count - 1)
        first, shares = 0, []
        for share in np.unique(of_file):
            mine = [i for i in range(len(self.names)) if of_file[i] == share]
            names, lengths = tuple(self.names[i] for i in mine), tuple(self.lengths[i] for i in mine)
            shares.append((first, Vectors(self.folder, names, lengths, self.channels)))
            first += sum(lengths)
        return shares


def workers_for(vectors: Vectors, most: int, gpu: bool) -> int:
    """How many workers pay. Each sends its sums to the driver, which takes longer the more of them there are.

    With n GPUs the products take 1/n of their time and the sums n times theirs, whatever the dimensions and the words:
    at 14 TFLOP/s and 10 Gbit/s the n below is the fastest (docs/scale.md). Of CPUs only their start counts.
    """
    size = len(vectors) * vectors.channels * 4
    if gpu:
        return min(most, max(1, round(math.sqrt(len(vectors) / 45_000)), math.ceil(size / GPU_BYTES)))
    return min(most, max(1, round(size / SMALL_BYTES)))


class Worker:
    """A share of the vectors in the memory of one process, or of its GPU. Runs as a Ray actor."""

    def __init__(self, share: Vectors, first: int, pca: PCA | None, threads: int, gpu: bool) -> None:
        torch.set_num_threads(threads)
        self._x_ND = share.read(pca).to("cuda" if gpu else "cpu")
        self._first = first
        self._assigner: Assigner | None = None

    def survey(self, k: int) -> Survey:
        return survey(self._x_ND, k, self._first)

    def sample(self, rows: Tensor, grid: Grid) -> Tensor:
        return self._on(grid).x_ND[rows - self._first].cpu()

    def assign(self, centroids_KD: np.ndarray, grid: Grid) -> np.ndarray:
        assign = self._on(grid)
        return assign(torch.from_numpy(np.array(centroids_KD)).to(self._x_ND.device)).flat().cpu().numpy()

    def _on(self, grid: Grid) -> Assigner:
        """The vectors on the grid; it comes with every call, for a worker that was started again has forgotten it."""
        if self._assigner is None:
            self._assigner = Assigner(grid.snap_(self._x_ND), grid)
        return self._assigner


class RaySource:
    """Vectors that are spread over Ray actors."""

    def __init__(self, vectors: Vectors, pca: PCA | None, machine: Machine) -> None:
        import ray

        self._ray = ray
        self._count = len(vectors)
        self._stall_seconds = machine.stall_seconds
        wanted = workers_for(vectors, machine.workers if machine.gpu else machine.cpus, machine.gpu)
        gpus = machine.gpus_per_worker if machine.gpu else 0.0
        self._room = room = reserve(wanted, gpus)
        threads = 1 if wanted > 1 else machine.cpus_per_worker  # which one node is known to have
        options: Any = {"num_cpus": threads, "num_gpus": gpus, "scheduling_strategy": room.strategy}
        actor: Any = ray.remote(max_restarts=-1, max_task_retries=-1, **options)(Worker)
        shares = vectors.shares(room.count)
        self._starts = [first for first, _ in shares] + [len(vectors)]
        self._workers = [actor.remote(share, first, pca, threads, machine.gpu) for first, share in shares]
        self.grid: Grid | None = None

    def __len__(self) -> int:
        return self._count

    def prepare(self, k: int) -> None:
        """Look at all vectors, refuse those that cannot become k words, and choose their grid."""
        self.grid = grid_for(reduce(add, self._all([w.survey.remote(k) for w in self._workers])), k)

    def sample(self, n: int, seed: int) -> Tensor:
        rows = sample_rows(len(self), n, seed)
        picks = [
            worker.sample.remote(rows[(rows >= first) & (rows < stop)], self.grid)
            for worker, first, stop in zip(self._workers, self._starts, self._starts[1:], strict=False)
        ]
        return torch.cat(self._all(picks))

    def assign(self, centroids_KD: Tensor) -> Sums:
        ref = self._ray.put(centroids_KD.numpy())
        flat = reduce(add, self._all([worker.assign.remote(ref, self.grid) for worker in self._workers]))
        return Sums.of_flat(torch.from_numpy(np.array(flat)), len(centroids_KD))  # what Ray gives is read-only

    def close(self) -> None:
        for worker in self._workers:
            self._ray.kill(worker)
        self._room.release()

    def _all(self, refs: list[Any]) -> list[Any]:
        try:
            return list(self._ray.get(refs, timeout=self._stall_seconds))
        except self._ray.exceptions.GetTimeoutError:
            raise stalled("k-means", self._stall_seconds) from None


def cluster_vectors(
    vectors: Vectors,
    config: Vocabulary,
    seed: int,
    machine: Machine,
    scratch: Folder,
    on_iteration: Callable[[int, float], None],
) -> tuple[Clusters, PCA | None]:
    """Centroids of all vectors, from the last checkpoint if there is one."""
    state = saved_state(scratch)  # before there are workers, whom an error would leave behind
    pca = learn_pca(vectors, config, seed, machine)
    source = RaySource(vectors, pca, machine)
    saved = 0.0

    def save(state: State) -> None:
        nonlocal saved
        if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
            buffer = io.BytesIO()
            torch.save(state.pack(), buffer)
            scratch.write_bytes(CHECKPOINT, buffer.getvalue())
            saved = time.monotonic()

    try:
        source.prepare(config.size)
        clusters = kmeans(
            source,
            config.size,
            seed=seed,
            init=config.init,
            iterations=config.iterations,
            tolerance=config.tolerance,
            restarts=config.restarts,
            grid=source.grid,
            on_iteration=on_iteration,
            state=state,
            on_state=save,
        )
    finally:
        source.close()
    return clusters, pca


def saved_state(scratch: Folder) -> State | None:
    """Where the last run stopped, if it has left word."""
    if not scratch.exists(CHECKPOINT):
        return None
    content = scratch.read_bytes(CHECKPOINT)
    try:
        return State.unpack(torch.load(io.BytesIO(content), weights_only=True))
    except Exception as error:  # of whatever kind: torch and pickle have many for a file that is not theirs
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{scratch.path(CHECKPOINT)}: cannot be read ({reason}); delete it and run again") from error


def learn_pca(vectors: Vectors, config: Vocabulary, seed: int, machine: Machine) -> PCA | None:
    """Principal components of a sample, in one task and with one thread, so that they do not depend on the machine."""
    if config.pca is None:
        return None
    components = config.pca

    def fit() -> PCA:
        torch.set_num_threads(1)
        rows = sample_rows(len(vectors), min(len(vectors), PCA_SAMPLE), seed)
        return fit_pca(vectors.read_rows(rows), components, config.whiten)

    return in_one_task(fit, (), machine, "principal components", 1)
