"""Passes over shards with Ray Data: the rows of a job are shards, and each output is written whole and on its own.

Tasks, not actors: a task that dies with its node is simply run again elsewhere, and a finished shard is never redone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from bownet.nets.checkpoint import load_backbone
from bownet.nets.taps import Backbone, freeze
from pipelines.machine import Machine
from pipelines.store import Artifact

Row = dict[str, Any]


def for_each_shard(rows: list[Row], work: Callable[[Row], Row], machine: Machine, gpu: bool = False) -> list[Row]:
    """Run `work` on every row, in parallel over the cluster; the results come back in the order of `rows`."""
    import ray

    if not rows:
        return []
    numbered = [{"row": i, **row} for i, row in enumerate(rows)]

    def one(row: Row) -> Row:
        torch.set_num_threads(1)
        i = row.pop("row")
        return {"row": i, **work(row)}

    gpus = 1 if gpu and machine.gpu else None
    dataset = ray.data.from_items(numbered, override_num_blocks=len(numbered))
    done = dataset.map(one, num_cpus=1, num_gpus=gpus).take_all()
    return sorted(done, key=lambda row: row["row"])


@lru_cache(maxsize=2)
def teacher_of(net: Artifact) -> Backbone:
    """The frozen network of an artifact, loaded once per worker process."""
    backbone = load_backbone(net.local_path("backbone.safetensors"))
    freeze(backbone)
    return backbone.to("cuda" if torch.cuda.is_available() else "cpu")
