"""What a training refuses reaches the user in one line, from real workers of a real Ray, and is not tried again."""

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from bownet.config import Net, Optimiser, Teacher
from pipelines.machine import Machine
from pipelines.stages.ray_train import agreed
from pipelines.stages.teacher import TrainTeacher, new_task
from pipelines.stages.training import CHECKPOINT, TrainingJob, last_checkpoint, run_training
from pipelines.store import Artifact, Folder, StoreError, Workspace

NET = Net(arch="wrn-10-1")
PASS = Optimiser(epochs=1, iterations_per_epoch=None, batch=32, drops=())
LINE = "/cache/x: cannot write: No space left on device; free space"


def job_of(raw: Artifact, make: Callable[[], nn.Module] | None = None) -> TrainingJob:
    rotation = TrainTeacher(Teacher(arch=NET.arch, head_layers=1), 0, raw, model="RotNet")
    return TrainingJob(make or partial(new_task, rotation), raw, NET, PASS, 0, "label", "key")


def work_in(folder: Path, machine: Machine, **settings: Any) -> Workspace:
    return Workspace(str(folder), "artifacts/teacher/key", replace(machine, cpus_per_worker=1, **settings))


def test_a_task_that_refuses_is_quoted_without_its_traceback(raw: Artifact, machine: Machine, tmp_path: Path) -> None:
    """Targets are read in a task of their own, out of which Ray brings an error with the traceback as its text."""

    def targets() -> NDArray[Any]:
        raise StoreError(LINE)

    with pytest.raises(ValueError, match=r".") as refused:
        run_training(replace(job_of(raw), targets=targets), work_in(tmp_path, machine, in_task=True))
    assert str(refused.value) == LINE


def test_a_damaged_checkpoint_is_named(raw: Artifact, machine: Machine, tmp_path: Path) -> None:
    work = work_in(tmp_path, machine, in_task=True)
    work.scratch.write_bytes(CHECKPOINT, b"half of it")
    line = rf"^{work.scratch.path(CHECKPOINT)}: cannot be read \(.*\); delete it and run again$"
    with pytest.raises(ValueError, match=line):
        run_training(job_of(raw), work)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02}q\x00.", np.random.default_rng(0).bytes(9000)])
def test_checkpoints_are_damaged_in_many_ways(content: bytes, tmp_path: Path) -> None:
    scratch = Folder(str(tmp_path))
    scratch.write_bytes(CHECKPOINT, content)
    with pytest.raises(ValueError, match=r"checkpoint\.pt: cannot be read \(.*\); delete it and run again$"):
        last_checkpoint(scratch)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_what_one_of_two_workers_refuses_ends_both(rank: int, raw: Artifact, machine: Machine, tmp_path: Path) -> None:
    """Such as a node that does not see the store. The other would wait for it for half an hour."""
    job = job_of(raw)

    def make() -> nn.Module:
        import ray.train

        if ray.train.get_context().get_world_rank() == rank:
            raise StoreError(LINE)
        return job.make()

    started = time.monotonic()
    with pytest.raises(ValueError, match=r".") as refused:
        run_training(replace(job, make=make), work_in(tmp_path, machine, workers=2))
    assert str(refused.value) == LINE
    assert time.monotonic() - started < 300


@pytest.mark.slow
def test_two_workers_begin_from_what_the_first_one_reads(raw: Artifact, machine: Machine, tmp_path: Path) -> None:
    """Only rank 0 reads a checkpoint, and both refuse one that it cannot read."""
    work = work_in(tmp_path, machine, workers=2)
    work.scratch.write_bytes(CHECKPOINT, b"half of it")
    with pytest.raises(ValueError, match=r"checkpoint\.pt: cannot be read"):
        run_training(job_of(raw), work)


def process(rank: int, folder: str) -> None:
    where = f"file://{folder}/meeting"
    torch.distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2)

    def make(refuses: int | None) -> int:
        if rank == refuses:
            raise StoreError(LINE)
        return rank

    said: list[Any] = [agreed(partial(make, None), 2)]
    for refuses in (0, 1):
        try:
            agreed(partial(make, refuses), 2)
        except ValueError as error:
            said.append(str(error))
    (Path(folder) / str(rank)).write_text(repr(said))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_all_processes_come_to_the_same_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", loopback)
    torch.multiprocessing.spawn(process, (str(tmp_path),), nprocs=2)
    for rank in (0, 1):
        assert (tmp_path / str(rank)).read_text() == repr([rank, LINE, LINE])
