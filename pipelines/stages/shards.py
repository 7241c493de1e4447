"""Passes over shards with Ray Data: the rows of a job are shards, and each output is written whole and on its own.

Tasks, not actors: a task that dies with its node is simply run again elsewhere, and a finished shard is never redone.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from bownet.nets.checkpoint import load_backbone
from bownet.nets.taps import Backbone, freeze
from pipelines.machine import Machine
from pipelines.store import Artifact

Row = dict[str, Any]
TASKS_PER_CPU = 4  # enough to keep all busy to the end, few enough that starting them costs little


def for_each_shard(rows: list[Row], work: Callable[[Row], Row], machine: Machine, gpu: bool = False) -> list[Row]:
    """Run `work` on every row, in parallel over the cluster; the results come back in the order of `rows`."""
    import ray

    if not rows:
        return []

    def one(item: Row) -> Row:
        torch.set_num_threads(1)
        return {"number": item["number"], "made": packed(work(unpacked(item["row"])))}

    gpus = 1 if gpu and machine.gpu else None
    items = [{"number": i, "row": packed(row)} for i, row in enumerate(rows)]
    dataset = ray.data.from_items(items, override_num_blocks=min(len(items), TASKS_PER_CPU * machine.cpus))
    done = {item["number"]: unpacked(item["made"]) for item in dataset.map(one, num_cpus=1, num_gpus=gpus).iter_rows()}
    return [done[i] for i in range(len(rows))]


def packed(value: Any) -> bytes:
    """As a column of Ray Data carries it: our own objects, between our own processes."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    return pickle.loads(data)


@lru_cache(maxsize=2)
def teacher_of(net: Artifact) -> Backbone:
    """The frozen network of an artifact, loaded once per worker process."""
    backbone = load_backbone(net.local_path("backbone.safetensors"))
    freeze(backbone)
    return backbone.to("cuda" if torch.cuda.is_available() else "cpu")
