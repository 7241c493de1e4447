"""Passes over shards with Ray Data: the rows of a job are shards, and each output is written whole and on its own.

Tasks, not actors: a task that dies with its node is simply run again elsewhere, and a finished shard is never redone.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch

from bownet.nets.checkpoint import load_backbone
from bownet.nets.taps import Backbone, freeze
from pipelines.machine import Machine
from pipelines.progress import posted
from pipelines.stages.device import own_device
from pipelines.stages.watch import run_watched
from pipelines.store import Artifact, Folder, StoreError

Row = dict[str, Any]
Unwritten = Callable[[], Row]  # writes a shard to the disk while the next one is computed, and returns its row

SECONDS_TO_APPEAR = 5.0  # of a file on another node's side of a network file system


def for_each_shard(
    rows: list[Row], work: Callable[[Row], Row | Unwritten], machine: Machine, label: str = "", gpu: bool = False
) -> list[Row]:
    """Run `work` on every row, in parallel over the cluster; the results come back in the order of `rows`.

    `label` is the stage's, under which people see how far it is.
    """
    import ray

    if not rows:
        return []

    def some(batch: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(1)
        try:
            done = each_of(batch)
        except (ValueError, OSError) as error:  # what the user must mend; raised here, Ray Data would lose its cause
            error.add_note(traceback.format_exc())
            done = [error] * len(batch["number"])
        return {"number": batch["number"], "made": [packed(row) for row in done]}

    def each_of(batch: dict[str, Any]) -> list[Any]:
        made: list[Any] = []
        with ThreadPoolExecutor(1) as writer:
            for number, row in zip(batch["number"].tolist(), batch["row"], strict=True):
                result = work(unpacked(row))
                if made and isinstance(made[-1], Future):
                    made[-1] = made[-1].result()  # one shard at most waits for the disk
                made.append(writer.submit(result) if callable(result) else result)
                if machine.board is not None:
                    record = {"kind": "shard", "label": label, "key": "", "number": number, "epochs": len(rows)}
                    machine.board.post.remote(record)
            return [m.result() if isinstance(m, Future) else m for m in made]

    gpus = machine.gpus_per_worker if gpu and machine.gpu else None
    items = [{"number": i, "row": packed(row)} for i, row in enumerate(rows)]
    tasks = tasks_for(len(items), machine.workers if gpus else machine.cpus)
    dataset = ray.data.from_items(items, override_num_blocks=tasks)
    # With GPUs Ray Data wants a batch size, and joins tasks that have fewer rows: this is the least that one has.
    size = len(items) // tasks if gpus else None
    finished = dataset.map_batches(some, batch_size=size, num_cpus=1, num_gpus=gpus).iter_rows()
    done: dict[int, Row] = {}

    def collect() -> None:
        for item in finished:
            row = unpacked(item["made"])
            if isinstance(row, Exception):
                raise row
            done[item["number"]] = row

    run_watched(
        collect, lambda: (len(done), posted(machine.board)), label or "a pass over shards", machine.stall_seconds
    )
    return [done[i] for i in range(len(rows))]


def require_files(folder: Folder, names: Collection[str]) -> None:
    """What tasks say they have written is there. Else a node has another folder of this name, and the files in it."""
    until = time.monotonic() + SECONDS_TO_APPEAR
    while missing := sorted(set(names) - folder.files().keys()):
        if time.monotonic() > until:
            raise StoreError(
                f"{folder.path(missing[0])}: not there, though a task has written it ({len(missing)} of {len(names)} "
                "files are missing); let all nodes mount the same folder as the store, and run again"
            )
        time.sleep(0.5)


def tasks_for(rows: int, cpus: int) -> int:
    """One task per CPU for few rows, as starting one takes a while; up to four where some machines may be slow."""
    return min(rows, cpus * max(1, min(4, rows // (8 * cpus))))


def packed(value: Any) -> bytes:
    """As a column of Ray Data carries it: our own objects, between our own processes."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 (never read from a file: a process of this program has just made it)


@lru_cache(maxsize=2)
def teacher_of(net: Artifact) -> Backbone:
    """The frozen network of an artifact, loaded once per worker process."""
    backbone = load_backbone(net.local_path("backbone.safetensors"))
    freeze(backbone)
    return backbone.to(own_device())
