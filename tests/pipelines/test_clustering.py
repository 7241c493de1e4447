"""k-means on a real Ray: the same bits for any number of workers, after a kill and after a restart of the program."""

import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bownet.config import Vocabulary
from bownet.words.kmeans import cluster
from bownet.words.pca import fit_pca
from pipelines.machine import Machine
from pipelines.stages import clustering, room
from pipelines.stages.clustering import CHECKPOINT, RaySource, Vectors, cluster_vectors
from pipelines.store import Folder

CONFIG = Vocabulary(size=32, iterations=12, tolerance=0.0)


@pytest.fixture(scope="module")
def x_ND() -> torch.Tensor:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(24, 16)) * 3
    return torch.from_numpy((centres[rng.integers(24, size=4000)] + rng.normal(size=(4000, 16))).astype(np.float32))


@pytest.fixture(scope="module")
def vectors(x_ND: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> Vectors:
    """Seven files of different lengths."""
    folder = Folder(str(tmp_path_factory.mktemp("vectors")))
    parts = np.split(x_ND.numpy(), [300, 1000, 1001, 2200, 2900, 3500])
    for i, part in enumerate(parts):
        folder.write_npy(f"{i}.npy", part)
    return Vectors(folder, tuple(f"{i}.npy" for i in range(7)), tuple(map(len, parts)), 16)


@pytest.fixture
def many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SMALL_BYTES", 1)  # as many workers as there are CPUs


def silent(i: int, inertia: float) -> None:
    pass


def test_files_are_read_whole_or_by_rows(vectors: Vectors, x_ND: torch.Tensor) -> None:
    assert torch.equal(vectors.read(), x_ND)
    rows = torch.tensor([0, 299, 300, 1000, 1001, 3999])
    assert torch.equal(vectors.read_rows(rows), x_ND[rows])
    for count in (1, 2, 4, 7, 20):
        shares = vectors.shares(count)
        assert torch.equal(torch.cat([share.read() for _, share in shares]), x_ND)
        assert [first for first, _ in shares] == np.cumsum([0, *(len(s) for _, s in shares)])[:-1].tolist()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_does_not_change_a_bit(
    workers: int, vectors: Vectors, x_ND: torch.Tensor, machine: Machine, many_workers: None, tmp_path: Path
) -> None:
    expected = cluster(x_ND, 32, seed=5, iterations=12, tolerance=0.0)
    few = Machine(1, 1, False, workers)
    found, pca = cluster_vectors(vectors, CONFIG, 5, few, Folder(str(tmp_path)), silent)
    assert pca is None
    assert torch.equal(found.centroids_KD, expected.centroids_KD)
    assert torch.equal(found.counts_K, expected.counts_K)
    assert found.inertia == expected.inertia


class Killed(Exception):
    pass


def test_a_new_run_goes_on_from_the_checkpoint(
    vectors: Vectors,
    x_ND: torch.Tensor,
    machine: Machine,
    many_workers: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clustering, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    undisturbed = cluster(x_ND, 32, seed=5, iterations=12, tolerance=0.0)

    def die(i: int, inertia: float) -> None:
        if i == 6:
            raise Killed

    scratch, told = Folder(str(tmp_path / "b")), []
    with pytest.raises(Killed):
        cluster_vectors(vectors, CONFIG, 5, machine, scratch, die)
    assert scratch.exists(CHECKPOINT)
    resumed, _ = cluster_vectors(vectors, CONFIG, 5, machine, scratch, lambda i, inertia: told.append(i))
    assert told[0] == 6  # 0 to 5 were saved
    assert torch.equal(resumed.centroids_KD, undisturbed.centroids_KD)
    assert resumed.inertia == undisturbed.inertia


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 half of one"])
def test_a_checkpoint_that_cannot_be_read_ends_before_workers_start(
    content: bytes, vectors: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(RaySource, "__init__", lambda self, *arguments: started.append(arguments))
    scratch = Folder(str(tmp_path))
    scratch.write_bytes(CHECKPOINT, content)
    with pytest.raises(ValueError, match=rf"^{re.escape(scratch.path(CHECKPOINT))}: cannot be read \(.*\); delete it"):
        cluster_vectors(vectors, CONFIG, 5, Machine(1, 1, False, 1), scratch, silent)
    assert started == []


@pytest.fixture
def victim(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process numbers of the workers that are started."""
    pids: list[int] = []
    original = RaySource.__init__

    def start(self: RaySource, *arguments: Any) -> None:
        original(self, *arguments)
        pids.extend(self._ray.get([w.__ray_call__.remote(lambda _: os.getpid()) for w in self._workers]))

    monkeypatch.setattr(RaySource, "__init__", start)
    return pids


def test_a_killed_worker_is_replaced_and_nothing_changes(
    vectors: Vectors, x_ND: torch.Tensor, machine: Machine, many_workers: None, victim: list[int], tmp_path: Path
) -> None:
    undisturbed = cluster(x_ND, 32, seed=5, iterations=12, tolerance=0.0)

    def kill(i: int, inertia: float) -> None:
        if i == 4:
            os.kill(victim[-1], signal.SIGKILL)
            time.sleep(0.2)

    disturbed, _ = cluster_vectors(vectors, CONFIG, 5, machine, Folder(str(tmp_path / "b")), kill)
    assert torch.equal(disturbed.centroids_KD, undisturbed.centroids_KD)
    assert disturbed.inertia == undisturbed.inertia


def test_a_stall_ends_with_a_word(vectors: Vectors, machine: Machine, many_workers: None, tmp_path: Path) -> None:
    hasty = replace(machine, stall_seconds=0.01)  # less than a worker needs to start
    with pytest.raises(RuntimeError, match=r"k-means: no sign of life for .* the same command continues"):
        cluster_vectors(vectors, CONFIG, 5, hasty, Folder(str(tmp_path)), silent)


def test_principal_components_are_clustered(
    vectors: Vectors, x_ND: torch.Tensor, machine: Machine, many_workers: None, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(update={"pca": 5, "whiten": True})
    found, pca = cluster_vectors(vectors, config, 5, machine, Folder(str(tmp_path)), silent)
    assert pca is not None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = fit_pca(x_ND, 5, whiten=True)
    torch.set_num_threads(threads)
    assert torch.equal(pca.projection_CD, expected.projection_CD)
    assert found.centroids_KD.shape == (32, 5)
    reference = cluster(pca.transform(x_ND), 32, seed=5, iterations=12, tolerance=0.0)
    assert found.inertia[-1] == pytest.approx(reference.inertia[-1], rel=1e-3)


def test_vectors_that_cannot_become_words_are_refused(machine: Machine, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    same = np.tile(np.arange(4, dtype=np.float32), (100, 1))
    few = np.arange(100, dtype=np.float32)[:, None] // 10 * np.ones((1, 4), np.float32)
    broken = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    broken[7, 2] = np.nan
    for name, x, message in (
        ("same", same, "the teacher has collapsed"),
        ("few", few, "only 10 of the 100 feature vectors differ"),
        ("broken", broken, "7"),
    ):
        folder.write_npy(f"{name}.npy", x)
        vectors = Vectors(folder, (f"{name}.npy",), (100,), 4)
        with pytest.raises(ValueError, match=message):
            cluster_vectors(vectors, CONFIG, 0, machine, folder.folder(name), silent)


def test_it_does_with_fewer_workers_where_others_hold_the_cpus(
    vectors: Vectors, machine: Machine, many_workers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two programs could hold half of the CPUs and wait for the other's: all workers are placed, or fewer."""
    import ray

    monkeypatch.setattr(room, "PATIENCE", 1.0)

    @ray.remote(num_cpus=1)
    class Holder:
        def here(self) -> bool:
            return True

    holder = Holder.remote()
    assert ray.get(holder.here.remote())
    found, _ = cluster_vectors(vectors, CONFIG, 5, replace(machine, cpus=2), Folder(str(tmp_path / "a")), silent)
    ray.kill(holder)
    expected, _ = cluster_vectors(vectors, CONFIG, 5, machine, Folder(str(tmp_path / "b")), silent)
    assert torch.equal(found.centroids_KD, expected.centroids_KD)
