"""The cluster is looked at before each stage: nodes that join are used, nodes that went are waited for."""

from typing import Any

import pytest
from killing import wait_for

from pipelines.cluster import Cluster
from pipelines.machine import Machine, Resources


def test_nodes_join_and_leave_between_stages(nodes: Any) -> None:
    said: list[str] = []
    cluster = Cluster(Resources(workers=2, cpus_per_worker=1), tell=said.append)
    assert (cluster().workers, cluster().cpus, said) == (2, 2, [])
    more = nodes.add_node(num_cpus=2)
    nodes.wait_for_nodes()
    assert cluster().cpus == 4
    assert said == ["the cluster has changed: 2 training workers (1 CPU each), 4 CPUs for data"]
    large = Cluster(Resources(workers=4, cpus_per_worker=1), tell=said.append)
    kept: Machine = large()
    nodes.remove_node(more)
    wait_for(lambda: cluster().cpus == 2)
    assert large() == kept  # training asks Ray for four, and waits
    assert said[-1].startswith("resources.workers=4 x cpus_per_worker=1: the cluster has 2 CPUs")
    assert said[-1].endswith("so the stage waits for nodes to come back")


def test_what_was_never_there_is_refused(nodes: Any) -> None:
    with pytest.raises(ValueError, match=r"resources.workers=4 x cpus_per_worker=1: the cluster has 2 CPUs"):
        Cluster(Resources(workers=4, cpus_per_worker=1))()
    with pytest.raises(ValueError, match=r"resources.gpu=True: the cluster has no GPUs"):
        Cluster(Resources(gpu=True))()


def test_a_wait_ends(nodes: Any) -> None:
    said: list[str] = []
    wished = Resources(workers=4, cpus_per_worker=1, wait_minutes=0.02)
    with pytest.raises(ValueError, match=r"the cluster has 2 CPUs"):
        Cluster(wished, tell=said.append)()
    assert len(said) == 1
    assert said[0].endswith("Waiting 0.02 minutes for nodes to join")


def test_a_node_that_joins_ends_the_wait(nodes: Any) -> None:
    said: list[str] = []

    def add(text: str) -> None:
        said.append(text)
        nodes.add_node(num_cpus=2)

    machine = Cluster(Resources(workers=4, cpus_per_worker=1, wait_minutes=5), tell=add)()
    assert (machine.workers, machine.cpus, len(said)) == (4, 4, 1)
    nodes.remove_node(next(iter(nodes.worker_nodes)))
