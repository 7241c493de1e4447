"""Two real processes that train together over gloo: the steps of one that has the whole batch, up to rounding."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch import Generator, Tensor, nn
from training_tasks import Regression, SelfTaught, numbers, pixels, without_times

from bownet.config import Optimiser
from bownet.training import Hooks, Shard, how_far, loop, train

pytestmark = pytest.mark.slow

WORLD = 2
LOOPBACK = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
CONFIG = Optimiser(
    epochs=3, iterations_per_epoch=None, batch=11, drops=(2,), weight_decay=1e-3
)  # 39 images: 10 10 10 9


class OneNaN(Regression):
    """The loss of rank 1 is no number from the third step on."""

    calls = 0

    def forward(self, images_NHWC: Tensor, y_N: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        self.calls += 1
        loss, metrics = super().forward(images_NHWC, y_N, generator)
        poisoned = torch.distributed.get_rank() == 1 and self.calls > 2
        return loss * (math.nan if poisoned else 1.0), metrics


def together(module: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(module)


def worker(rank: int, folder: Path) -> None:
    """All that two processes are needed for, in one pair of them: starting one takes seconds."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
    meeting = f"file://{folder / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD)
    shard = Shard(rank, WORLD)
    results: dict[str, Any] = {}

    def run(name: str, task: nn.Module, targets: Any, config: Optimiser = CONFIG, **options: Any) -> None:
        history = train(task, pixels(39), targets, config, seed=3, shard=shard, parallel=together, **options)
        results[name] = {"weights": task.state_dict(), "history": history}

    run("plain", Regression(), numbers(39))
    for name, setting in {"accumulate": {"accumulate": 2}, "clip": {"clip": 0.2}, "ema": {"ema": 0.9}}.items():
        run(name, Regression(), numbers(39), CONFIG.model_copy(update=setting))
    run("renewed", SelfTaught(), None)

    loop.SECONDS_BETWEEN_LOOKS, loop.SECONDS_BETWEEN_CHECKPOINTS = 0.0, -1.0
    states: list[bytes] = []
    run("watched", Regression(), numbers(39), hooks=Hooks(save=states.append, save_within=states.append))
    torch.save(states, folder / f"states-{rank}.pt")
    torch.distributed.barrier()
    kept: list[bytes] = torch.load(folder / "states-0.pt")  # only rank 0 saves
    (within,) = [state for state in kept if how_far(state) == (1, 2)]
    run("resumed", Regression(seed=99 + rank), numbers(39), resume=within)
    try:
        run("nan", OneNaN(), numbers(39))
    except ValueError as error:
        results["nan"] = str(error)
    results["saved"] = len(states)
    torch.save(results, folder / f"results-{rank}.pt")
    torch.distributed.barrier()  # one that leaves while the other still listens would abort it
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("workers")
    torch.multiprocessing.spawn(worker, (folder,), nprocs=WORLD)
    return [torch.load(folder / f"results-{rank}.pt") for rank in range(WORLD)]


def alone(task: nn.Module, targets: Any, config: Optimiser = CONFIG) -> tuple[nn.Module, list[dict[str, float]]]:
    return task, train(task, pixels(39), targets, config, seed=3)


@pytest.mark.parametrize("name", ["plain", "accumulate", "clip", "ema"])
def test_two_workers_take_the_steps_of_one(results: list[dict[str, Any]], name: str) -> None:
    """Also the last batch of an epoch, of which one has five images and the other four."""
    setting: dict[str, Any] = {"clip": {"clip": 0.2}, "ema": {"ema": 0.9}}.get(name, {})
    one, expected = alone(Regression(), numbers(39), CONFIG.model_copy(update=setting))
    for of_rank in results:
        for key, value in one.state_dict().items():
            torch.testing.assert_close(of_rank[name]["weights"][key], value, rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(of_rank[name]["history"], expected, strict=True):
            for key in ("loss", "guess", "gradient_norm", "lr"):
                assert ours[key] == pytest.approx(theirs[key], rel=1e-4)


@pytest.mark.parametrize("name", ["plain", "accumulate", "ema", "renewed", "resumed"])
def test_workers_agree_bit_for_bit(results: list[dict[str, Any]], name: str) -> None:
    a, b = (of_rank[name] for of_rank in results)
    assert all(torch.equal(value, b["weights"][key]) for key, value in a["weights"].items())
    assert without_times(a["history"]) == without_times(b["history"])


def test_renewed_targets_reach_all_workers(results: list[dict[str, Any]]) -> None:
    one, expected = alone(SelfTaught(), None)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(results[1]["renewed"]["weights"][key], value, rtol=1e-4, atol=1e-5)
    losses = [record["loss"] for record in results[1]["renewed"]["history"]]
    assert losses == pytest.approx([record["loss"] for record in expected], rel=1e-4)


def test_killed_in_the_middle_of_an_epoch_they_end_the_same(results: list[dict[str, Any]]) -> None:
    assert [of_rank["saved"] for of_rank in results] == [3 + 3 * 3, 0]
    for of_rank in results:
        for name in ("watched", "resumed"):
            weights = of_rank["plain"]["weights"]
            assert all(torch.equal(value, of_rank[name]["weights"][key]) for key, value in weights.items())
            assert without_times(of_rank[name]["history"]) == without_times(of_rank["plain"]["history"])


def test_what_only_one_sees_stops_all_at_the_same_step(results: list[dict[str, Any]]) -> None:
    """Else the others would wait for it for half an hour."""
    assert results[0]["nan"] == results[1]["nan"]
    assert "loss=nan" in results[0]["nan"]
    assert "in epoch 1, step 3 of 4" in results[0]["nan"]
