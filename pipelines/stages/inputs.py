"""How training images reach a worker: from its node's memory when they fit there, else in a stream of Ray Data.

Both give the same rows in the same order for the same seed, and raw pixels are the same to the bit either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bownet.config import Optimiser
from bownet.images.decode import BadImage
from bownet.training import Shard, batch_rows, steps_per_epoch
from pipelines.machine import Machine
from pipelines.stages.pictures import checked, count_of, data_of, pixels_of, row_reader, shards_of
from pipelines.store import Artifact

Cut = Callable[..., "NDArray[np.uint8] | BadImage"]  # of a file's bytes, and rng=
SHARE_OF_OBJECT_STORE = 0.5  # what training images may take of a node's; the rest is for everything else
AHEAD = 4  # batches that are fetched before they are needed


@dataclass(frozen=True)
class Share:
    """How the CPUs are shared between training and reading, for each worker."""

    per_worker: float  # CPUs that a training worker asks for
    threads: int  # that it uses
    readers: int  # tasks that read for it at a time


def shared_cpus(machine: Machine, stream: bool) -> Share:
    """Without a stream a worker computes on its whole share; with one it leaves a CPU to reading, where it has several.

    With a GPU it computes there, and all its CPUs but one may read. Reading tasks ask for no CPU, as two programs that
    train could hold all of them, and each wait for the other's.
    """
    asked, spare = machine.cpus_per_worker, machine.cpus - machine.workers * machine.cpus_per_worker
    readers = max(1, spare // machine.workers + (asked - 1 if machine.gpu else 0))
    if not stream or spare >= machine.workers:
        return Share(asked, asked, readers)
    return Share(asked, max(1, asked - 1), readers)


def streams(images: Artifact, machine: Machine) -> bool:
    """Files are decoded anew in every epoch; pixels stream when they do not fit a node's memory or when asked to."""
    data = data_of(images)
    if not data.is_raw:
        return True
    if machine.stream is not None:
        return machine.stream
    return count_of(images, "train") * data.image_size**2 * 3 > SHARE_OF_OBJECT_STORE * smallest_object_store()


def smallest_object_store() -> float:
    import ray

    sizes = [node["Resources"].get("object_store_memory", 0.0) for node in ray.nodes() if node["Alive"]]
    return min((size for size in sizes if size), default=0.0)


def once_per_node(load: Callable[[], NDArray[Any]]) -> Any:
    """Load an array in a task; a node keeps one copy for all its workers, and makes it again if it is lost."""
    import ray

    def loaded() -> NDArray[Any]:
        return load()

    return ray.remote(num_cpus=0, max_retries=-1)(loaded).remote()


@dataclass(frozen=True)
class Streamed:
    """Rows of Ray Data are batches: each task reads, decodes and cuts one of them, in order of need."""

    images: Artifact
    cut: Cut | None  # what is cut of a stored file; raw pixels come as they are
    share: Share
    rows: NDArray[np.int64] | None = None  # the images that are used; None for all

    def __len__(self) -> int:
        return count_of(self.images, "train") if self.rows is None else len(self.rows)

    def __iter__(self) -> Iterator[Tensor]:
        """All clean images in order, a shard at a time."""
        assert self.rows is None, "no task that renews its targets uses a part of the images"
        images, shards = self.images, shards_of(self.images, "train")
        return self._stream(len(shards), data_of(images).shard_size, lambda i: pixels_of(images, shards[i]))

    def epoch(self, config: Optimiser, seed: int, epoch: int, shard: Shard, first: int = 0) -> Iterator[Tensor]:
        images, cut, used = self.images, self.cut, self.rows
        n, steps = len(self), steps_per_epoch(len(self), config)

        def read(number: int) -> NDArray[np.uint8]:
            i = first + number
            rows = shard.part(batch_rows(n, config, seed, epoch, i))
            rows = rows if used is None else used[rows]
            step = epoch * steps + i

            def view(content: bytes, row: int) -> NDArray[np.uint8]:
                assert cut is not None
                rng = np.random.Generator(np.random.Philox(key=[seed, (step << 40) + row]))
                return checked(cut(content, rng=rng))

            return row_reader(images, "train")(rows, view)

        return self._stream(steps - first, config.batch, read)

    def _stream(self, count: int, most: int, read: Callable[[int], NDArray[np.uint8]]) -> Iterator[Tensor]:
        """`read(0)`, `read(1)`, ... in this order, each of `most` images at most, made by a task of the cluster."""
        import ray
        from ray.data._internal.datasource.range_datasource import RangeDatasource

        def make(batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.uint8]]:
            torch.set_num_threads(1)
            (number,) = batch["id"]
            return {"images": read(int(number))}

        # ray.data.range, but for its tasks, which ask for a CPU each and cannot be told otherwise
        numbers = RangeDatasource(count, column_name="id")
        at_a_time = self.share.readers
        dataset = ray.data.read_datasource(
            numbers, override_num_blocks=count, ray_remote_args={"num_cpus": 0}, concurrency=at_a_time
        )
        dataset.context.execution_options.preserve_order = True
        # Ray Data would cut what is much larger into several blocks, each of which would be taken for a batch.
        context, size = dataset.context, data_of(self.images).image_size
        context.target_max_block_size = max(context.target_max_block_size or 0, most * size**2 * 3)
        made = dataset.map_batches(make, batch_size=None, num_cpus=0, concurrency=at_a_time)
        for batch in made.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=AHEAD):
            yield torch.from_numpy(np.array(batch["images"]))  # a copy: the stream may have its memory back
