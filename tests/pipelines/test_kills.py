"""Processes and nodes of a real Ray cluster are killed while stages run: the bits are those of an undisturbed run.

A worker or a node that dies is replaced within the same call; after the death of the driver another one goes on.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from conftest import environment
from killing import kill_all, wait_for, while_it_runs, workers_of

from bownet.config import Data, Net, Vocabulary
from pipelines.machine import Resources, connect, survey
from pipelines.stages import vocabulary as vocabulary_stage
from pipelines.stages.clustering import Vectors
from pipelines.stages.images import Images
from pipelines.stages.teacher import RandomNet
from pipelines.stages.vocabulary import BuildVocabulary
from pipelines.stages.words import Quantize, load_words
from pipelines.store import Artifact, Store

NET = Net(arch="wrn-10-1")
DATA = Data(kind="scenes", train=1280, test=12, novel_per_class=1, shard_size=80)
SHARDS = 16
WORDS = Vocabulary(size=24, tap="block3", max_points_per_word=200, iterations=5)
MAP = "MapBatches(some)"  # what Ray calls a process that runs for_each_shard's function, as long as it does


def teacher_in(store: Store) -> tuple[Artifact, Artifact]:
    images = store.get(Images(DATA))
    return images, store.get(RandomNet(NET, 0, images, model="random"))


def vocabulary_in(store: Store) -> Artifact:
    images, net = teacher_in(store)
    return store.get(BuildVocabulary(WORDS, 0, images, net, NET, model="BoWNet"))


def words_in(store: Store) -> Artifact:
    images, net = teacher_in(store)
    return store.get(Quantize(images, net, vocabulary_in(store), flip=True, model="BoWNet"))


@pytest.fixture(scope="module")
def undisturbed(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A store in which nothing was killed: its root, the vectors that were clustered, its vocabulary and its words."""
    store = Store(tmp_path_factory.mktemp("undisturbed"), machine=survey(Resources()))
    vectors, vocabulary = with_vectors(lambda: vocabulary_in(store))
    words = words_in(store)
    assert len(words.info["shards"]) == SHARDS
    assert len(np.unique(load_words(words))) > WORDS.size // 2  # there is something that could differ
    return {"root": Path(store.root), "vectors": vectors, "vocabulary": vocabulary, "words": words}


def with_vectors(make: Callable[[], Artifact]) -> tuple[torch.Tensor, Artifact]:
    """The vectors that the vocabulary stage hands to k-means, which it deletes in the end, and its artifact."""
    seen: list[torch.Tensor] = []
    original = vocabulary_stage.cluster_vectors

    def look(vectors: Vectors, *others: Any) -> Any:
        seen.append(vectors.read())
        return original(vectors, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary_stage, "cluster_vectors", look)
        made = make()
    (vectors,) = seen
    return vectors, made


def store_with(undisturbed: dict[str, Any], folder: Path, *stages: str) -> Store:
    """Another store that begins with some of the artifacts of the undisturbed one."""
    for stage in stages:
        shutil.copytree(undisturbed["root"] / "artifacts" / stage, folder / "artifacts" / stage)
    return Store(folder, machine=survey(Resources()))


def finished_vectors(root: Path) -> list[Path]:
    return list(root.glob("scratch/vocabulary/*/train-*.vectors.npy"))


def finished_words(root: Path) -> list[Path]:
    """Shards that are whole; those that are being written have names that begin with a dot."""
    return list(root.glob("artifacts/words/*/train-*.words.npy"))


def identities(files: list[Path]) -> dict[str, tuple[int, int]]:
    """Of each file its inode and time: a file that is made again has others, also with the same contents."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def kill_workers(nodes: Any, finished: Callable[[], list[Path]]) -> Callable[[], tuple[int, int]]:
    """Kill, after the first finished shard, all that work on others; how many died, and how many shards there were."""

    def kill() -> tuple[int, int]:
        wait_for(finished)
        victims = workers_of(nodes.head_node, MAP)
        for victim in victims:
            os.kill(victim.pid, signal.SIGKILL)
        shards = len(finished())
        _, alive = psutil.wait_procs(victims, timeout=30)
        assert not alive
        return len(victims), shards

    return kill


def lose_node(nodes: Any, node: Any, finished: Callable[[], list[Path]]) -> Callable[[], tuple[int, int]]:
    """Remove a node that works while a pass goes on; how many workers it had, and how many shards were finished.

    Workers outlive their raylet by a second or so, in which they could finish; those of a lost machine do not.
    """

    def lose() -> tuple[int, int]:
        wait_for(finished)
        working = wait_for(lambda: workers_of(node, MAP))
        for worker in working:
            worker.suspend()
        try:
            shards = len(finished())
            nodes.remove_node(node, allow_graceful=False)
        finally:
            kill_all(working)
        return len(working), shards

    return lose


def assert_same_vocabulary(vectors: torch.Tensor, made: Artifact, undisturbed: dict[str, Any]) -> None:
    assert torch.equal(vectors, undisturbed["vectors"])
    for name in ("vocabulary.safetensors", "counts.npy"):
        assert made.read_bytes(name) == undisturbed["vocabulary"].read_bytes(name)


def assert_same_words(made: Artifact, undisturbed: dict[str, Any]) -> None:
    expected: Artifact = undisturbed["words"]
    np.testing.assert_array_equal(load_words(made), load_words(expected))
    assert made.key == expected.key
    files, others = made.manifest()["files"], expected.manifest()["files"]
    assert files == others  # nothing is missing, nothing is left over, and all have the same sha256


@pytest.mark.slow
def test_workers_killed_while_features_are_extracted(nodes: Any, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    store = store_with(undisturbed, tmp_path, "images", "random-net")
    kill = kill_workers(nodes, lambda: finished_vectors(tmp_path))
    (killed, shards), (vectors, vocabulary) = while_it_runs(kill, lambda: with_vectors(lambda: vocabulary_in(store)))
    assert killed >= 1
    assert 1 <= shards < SHARDS  # the pass was not over
    assert_same_vocabulary(vectors, vocabulary, undisturbed)


@pytest.mark.slow
def test_workers_killed_while_words_are_made(nodes: Any, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    store = store_with(undisturbed, tmp_path, "images", "random-net", "vocabulary")
    kill = kill_workers(nodes, lambda: finished_words(tmp_path))
    (killed, shards), words = while_it_runs(kill, lambda: words_in(store))
    assert killed >= 1
    assert 1 <= shards < SHARDS
    assert_same_words(words, undisturbed)


@pytest.mark.slow
def test_driver_killed_while_words_are_made(nodes: Any, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    """The second driver makes the missing shards, and leaves those alone that were finished before."""
    store = store_with(undisturbed, tmp_path, "images", "random-net", "vocabulary")
    log = tmp_path / "driver.log"
    with log.open("w") as output:
        variables = environment(RAY_ADDRESS=nodes.address)
        driver = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path)], env=variables, stdout=output, stderr=output
        )
    try:
        wait_for(lambda: finished_words(tmp_path) or driver.poll() is not None)
        workers = workers_of(nodes.head_node, MAP)
        assert driver.poll() is None, log.read_text()
    finally:
        driver.kill()  # SIGKILL
        driver.wait()
    assert workers
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive, f"workers outlive their driver: {alive}"
    before = identities(finished_words(tmp_path))
    assert 1 <= len(before) < SHARDS
    words = words_in(store)
    after = identities(finished_words(tmp_path))
    assert len(after) == SHARDS
    assert {name: after[name] for name in before} == before
    assert_same_words(words, undisturbed)


@pytest.mark.slow
def test_node_lost_while_features_are_extracted(nodes: Any, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    second = nodes.add_node(num_cpus=2)
    store = store_with(undisturbed, tmp_path, "images", "random-net")
    lose = lose_node(nodes, second, lambda: finished_vectors(tmp_path))
    (working, shards), (vectors, vocabulary) = while_it_runs(lose, lambda: with_vectors(lambda: vocabulary_in(store)))
    assert working >= 1
    assert 1 <= shards < SHARDS
    assert_same_vocabulary(vectors, vocabulary, undisturbed)


@pytest.mark.slow
def test_node_lost_while_words_are_made(nodes: Any, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    second = nodes.add_node(num_cpus=2)
    wait_for(lambda: survey(Resources()).cpus == 4)  # a node that another test has removed is known to be lost
    store = store_with(undisturbed, tmp_path, "images", "random-net", "vocabulary")
    lose = lose_node(nodes, second, lambda: finished_words(tmp_path))
    (working, shards), words = while_it_runs(lose, lambda: words_in(store))
    assert working >= 1
    assert 1 <= shards < SHARDS
    assert_same_words(words, undisturbed)


if __name__ == "__main__":  # the driver that is killed
    connect()
    words_in(Store(sys.argv[1], machine=survey(Resources())))
