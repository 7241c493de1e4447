"""Training input on a real Ray: a stream gives what memory gives, and every worker count shows each image once."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from PIL import Image

from bownet.config import Data, Optimiser
from bownet.images.views import random_view
from bownet.training import InMemory, Shard
from pipelines.machine import Machine
from pipelines.stages.images import Images
from pipelines.stages.inputs import Share, Streamed, once_per_node, shared_cpus, streams
from pipelines.stages.pictures import clean_view, data_of, load_split, row_reader, shards_of
from pipelines.store import Artifact, Store

SHARE = Share(1, 1, 2)
PASS = Optimiser(epochs=3, iterations_per_epoch=None, batch=32, drops=())


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Artifact:
    """Photos whose every pixel is the number of the photo, so that a crop tells which one it is of."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(50):
        size = (40 + i, 60 - i // 2)
        Image.new("RGB", size, (4 * i, 4 * i, 4 * i)).save(folder / f"{i:02d}.png")
    data = Data(kind="folder", path=str(folder), image_size=24, storage="encoded", shard_size=15)
    return Store(tmp_path_factory.mktemp("encoded"), machine=machine).get(Images(data))


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("iterations", [None, 5])
def test_a_stream_of_pixels_is_what_memory_gives(raw: Artifact, world: int, iterations: int | None) -> None:
    config = PASS.model_copy(update={"iterations_per_epoch": iterations})
    memory, stream = InMemory(load_split(raw, "train")), Streamed(raw, None, SHARE)
    for rank in range(world):
        pairs = zip(
            memory.epoch(config, 7, 1, Shard(rank, world)), stream.epoch(config, 7, 1, Shard(rank, world)), strict=True
        )
        assert sum(torch.equal(a, b) for a, b in pairs) == (iterations or 4)


def test_files_are_cut_the_same_for_any_number_of_workers(encoded: Artifact) -> None:
    cut = partial(random_view, size=24, area=(0.2, 1.0), aspect=(0.75, 1.34))
    stream = Streamed(encoded, cut, SHARE)

    def shown(world: int) -> torch.Tensor:
        parts = [list(stream.epoch(PASS, 3, 0, Shard(rank, world))) for rank in range(world)]
        return torch.cat([torch.cat(batch) for batch in zip(*parts, strict=True)])

    one, two = shown(1), shown(2)
    assert torch.equal(one, two)
    assert one.shape == (40, 24, 24, 3)  # a fifth is held out
    assert (one.amax((1, 2, 3)) == one.amin((1, 2, 3))).all()
    assert len(one[:, 0, 0, 0].unique()) == 40  # each photo once
    again = list(stream.epoch(PASS, 3, 1, Shard()))
    assert not torch.equal(torch.cat(again), one)  # another epoch, another order


def test_a_batch_that_ray_data_would_cut_comes_whole(raw: Artifact) -> None:
    """As those above 192 MiB would be, with the limit that Ray Data has by itself."""
    import ray.data

    context = ray.data.DataContext.get_current()
    before, context.target_max_block_size = context.target_max_block_size, 1000
    try:
        parts = list(Streamed(raw, None, SHARE).epoch(PASS, 7, 1, Shard()))
        clean = list(Streamed(raw, None, SHARE))
    finally:
        context.target_max_block_size = before
    memory = InMemory(load_split(raw, "train"))
    for found, expected in zip(parts, memory.epoch(PASS, 7, 1, Shard()), strict=True):
        assert torch.equal(found, expected)
    assert [len(part) for part in clean] == [row["stop"] - row["start"] for row in shards_of(raw, "train")]


@pytest.mark.parametrize("which", ["raw", "encoded"])
def test_one_image_of_a_remote_store_fetches_its_own_shard_alone(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: Artifact = request.getfixturevalue(which)
    monkeypatch.setenv("BOWNET_CACHE", str(tmp_path))
    memory, root = fsspec.filesystem("memory"), f"memory://{tmp_path.name}-{which}"
    for name in here.folder.list():
        memory.pipe(f"/{tmp_path.name}-{which}/artifacts/{here.ref}/{name}", here.folder.read_bytes(name))
    there, row = replace(here, root=root), shards_of(here, "train")[1]
    rows, data = np.array([row["start"], row["stop"] - 1]), data_of(here)
    found, expected = (
        row_reader(images, "train")(rows, lambda content, _: clean_view(content, data)) for images in (there, here)
    )
    np.testing.assert_array_equal(found, expected)
    fetched = {path.name for path in tmp_path.glob("*/*")}
    endings = ("images.npy",) if which == "raw" else ("bytes", "offsets.npy")
    assert fetched == {f"{row['name']}.{ending}" for ending in endings}


def test_an_array_in_memory_is_not_copied(raw: Artifact) -> None:
    import ray

    ref = once_per_node(partial(load_split, raw, "train"))
    first, second = ray.get(ref), ray.get(ref)
    assert np.shares_memory(first, second)
    assert not first.flags.writeable


def test_what_streams(raw: Artifact, encoded: Artifact, machine: Machine) -> None:
    assert not streams(raw, machine)
    assert streams(encoded, machine)
    asked = Machine(1, 2, False, 2, stream=True)
    assert streams(raw, asked)


@pytest.mark.parametrize(
    ("workers", "per_worker", "cpus", "stream", "expected"),
    [
        (1, 2, 2, False, Share(2, 2, 1)),
        (1, 2, 2, True, Share(2, 1, 1)),
        (2, 1, 2, True, Share(1, 1, 1)),
        (1, 1, 1, True, Share(1, 1, 1)),
        (2, 4, 16, True, Share(4, 4, 4)),  # 8 are spare
        (4, 4, 18, True, Share(4, 3, 1)),  # 2 are spare, too few for four
    ],
)
def test_what_reads_has_a_cpu_to_compute_on(
    workers: int, per_worker: int, cpus: int, stream: bool, expected: Share
) -> None:
    assert shared_cpus(Machine(workers, per_worker, False, cpus), stream) == expected


def test_the_cpus_of_a_gpu_read_for_it() -> None:
    assert shared_cpus(Machine(8, 12, True, 96), True) == Share(12, 11, 11)  # 88 of 96, as benchmarks/scale.py has it
    assert shared_cpus(Machine(1, 1, True, 4), True) == Share(1, 1, 3)


def test_who_holds_all_cpus_can_still_read(raw: Artifact, machine: Machine) -> None:
    """Two programs that train may hold them together, and none will give one back before it has read."""
    import ray

    def count(images: Artifact) -> int:
        return sum(len(batch) for batch in Streamed(images, None, SHARE).epoch(PASS, 7, 1, Shard()))

    held = ray.remote(num_cpus=machine.cpus)(count).remote(raw)
    assert ray.get(held, timeout=60) == 100
