"""Scheduling on GPUs, on a cluster that only says it has them: what Ray Data does with such tasks can be seen here."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipelines.machine import WORKER_VARIABLES, Machine, Resources, survey
from pipelines.stages.shards import Row, for_each_shard


@pytest.fixture
def two_gpus() -> Iterator[Machine]:
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 2, "include_dashboard": False})
    ray.init(address=cluster.address, log_to_driver=False)
    yield Machine(workers=2, cpus_per_worker=2, gpu=True, cpus=4)
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
def test_gpus_are_counted_and_no_more_are_promised(two_gpus: Machine) -> None:
    found = survey(Resources())
    assert (found.workers, found.gpu, found.cpus_per_worker) == (2, True, 2)
    with pytest.raises(ValueError, match=r"^resources.workers=8: the cluster has 2 GPUs, use 1..2$"):
        survey(Resources(workers=8))
    assert survey(Resources(workers=1)).gpu
    assert not survey(Resources(gpu=False)).gpu


@pytest.mark.slow
def test_both_gpus_work_and_the_order_is_kept(two_gpus: Machine) -> None:
    def where(row: Row) -> Row:  # in here, so that workers need not import this file
        return {"n": row["n"], "gpu": os.environ["CUDA_VISIBLE_DEVICES"], "pid": os.getpid()}

    done = for_each_shard([{"n": n} for n in range(7)], where, two_gpus, gpu=True)
    assert [row["n"] for row in done] == list(range(7))
    assert {row["gpu"] for row in done} == {"0", "1"}
    assert len({row["pid"] for row in done}) == 2


@pytest.mark.slow
def test_tasks_that_ask_for_half_a_gpu_share_one(two_gpus: Machine) -> None:
    """As those of a sweep with --gpus-per-trial 0.5: each sees one GPU, of which Ray gives it a half."""
    halves = replace(two_gpus, gpus_per_worker=0.5)

    def share(row: Row) -> Row:
        import ray

        return {"n": row["n"], "share": ray.get_runtime_context().get_assigned_resources()["GPU"]}

    done = for_each_shard([{"n": n} for n in range(4)], share, halves, gpu=True)
    assert [(row["n"], row["share"]) for row in done] == [(n, 0.5) for n in range(4)]


@pytest.mark.slow
def test_a_task_computes_where_ray_has_put_it(two_gpus: Machine) -> None:
    """Ray leaves the GPUs of a node visible to tasks that asked for none: what torch sees is not theirs to use."""
    import ray

    from pipelines.stages.device import own_device

    def where() -> str:
        return own_device()

    def seen() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    devices = [ray.get(ray.remote(num_cpus=1, num_gpus=gpus)(where).remote()) for gpus in (0, 1, 0.5)]
    assert devices == ["cpu", "cuda", "cuda"]
    assert own_device() == "cpu"
    told = {"env_vars": WORKER_VARIABLES}  # as `connect` tells all workers: Ray Train goes by what torch sees
    assert ray.get(ray.remote(num_cpus=1, num_gpus=0, runtime_env=told)(seen).remote()) == ""
    assert ray.get(ray.remote(num_cpus=1, num_gpus=1, runtime_env=told)(seen).remote()) in ("0", "1")
