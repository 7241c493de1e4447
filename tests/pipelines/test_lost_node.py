"""A cluster of two nodes, one of which is killed while k-means runs: it ends, with the same bits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bownet.config import Vocabulary
from bownet.words.kmeans import cluster
from pipelines.machine import Machine
from pipelines.stages import clustering
from pipelines.stages.clustering import RaySource, Vectors, cluster_vectors
from pipelines.store import Folder


@pytest.fixture
def nodes() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    started.add_node(num_cpus=4)
    ray.init(address=started.address, log_to_driver=False)
    started.wait_for_nodes()
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.mark.faults
def test_four_workers_on_two_nodes_of_which_one_dies(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "SMALL_BYTES", 1)
    x_ND = np.random.default_rng(0).normal(size=(4000, 16)).astype(np.float32)
    folder = Folder(str(tmp_path))
    for i, part in enumerate(np.array_split(x_ND, 8)):
        folder.write_npy(f"{i}.npy", part)
    vectors = Vectors(folder, tuple(f"{i}.npy" for i in range(8)), (500,) * 8, 16)
    places: list[str] = []
    original = RaySource.__init__

    def start(self: RaySource, *arguments: Any) -> None:
        original(self, *arguments)
        where = lambda _: __import__("ray").get_runtime_context().get_node_id()  # noqa: E731
        places.extend(self._ray.get([w.__ray_call__.remote(where) for w in self._workers]))

    monkeypatch.setattr(RaySource, "__init__", start)
    second = next(iter(nodes.worker_nodes))

    def kill(i: int, inertia: float) -> None:
        if i == 3:
            nodes.remove_node(second, allow_graceful=False)

    config = Vocabulary(size=32, iterations=10, tolerance=0.0)
    found, _ = cluster_vectors(vectors, config, 5, Machine(1, 1, False, 4), folder.folder("scratch"), kill)
    assert len(set(places)) == 2  # it had workers on both
    expected = cluster(torch.from_numpy(x_ND), 32, seed=5, iterations=10, tolerance=0.0)
    assert torch.equal(found.centroids_KD, expected.centroids_KD)
    assert found.inertia == expected.inertia
