"""Every setting of the optimiser, against numbers by hand or a plain computation."""

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from training_tasks import Regression, assert_same_weights, numbers, pixels, without_times

from bownet.config import Optimiser
from bownet.training import Hooks, Record, Shard, learner, learning_rate, train
from bownet.training.average import Average
from bownet.training.divergence import has_failed
from bownet.training.learner import Learner, parameter_groups

ONE_STEP: dict[str, Any] = {"epochs": 1, "iterations_per_epoch": None, "batch": 40, "drops": ()}
SOME_STEPS = ONE_STEP | {"epochs": 2, "batch": 11}  # 40 images in batches of 10


def trained(**settings: Any) -> tuple[Regression, list[Record]]:
    task = Regression()
    history = train(task, pixels(), numbers(), Optimiser(**settings), seed=0)
    return task, history


def gradient_of(task: Regression) -> dict[str, Tensor]:
    task.zero_grad()
    loss, _ = task(torch.from_numpy(pixels().images_NHWC), torch.from_numpy(numbers()), Generator())
    loss.backward()
    return {name: p.grad.clone() for name, p in task.named_parameters() if p.grad is not None}


def test_rate_in_proportion_to_the_batch() -> None:
    config = Optimiser(epochs=30, batch=512, lr=0.1, lr_batch=256)
    assert [learning_rate(config, e) for e in (0, 12, 24)] == pytest.approx([0.2, 0.02, 0.002])
    warm = Optimiser(epochs=10, schedule="cosine", warmup_epochs=2, lr=1.0, batch=64, lr_batch=256)
    assert [learning_rate(warm, e) for e in (1, 6)] == pytest.approx([0.125, 0.125], abs=1e-3)
    _, history = trained(**ONE_STEP, lr=0.1, lr_batch=20)
    assert history[0]["lr"] == 0.2


def test_decay_of_weights_only() -> None:
    """The step's difference to one without decay is -lr · decay · w for matrices and nothing for vectors."""
    plain, _ = trained(**ONE_STEP, weight_decay=0, nesterov=False)
    decayed, _ = trained(**ONE_STEP, weight_decay=0.5, decay="weights", nesterov=False)
    start = Regression()
    torch.testing.assert_close(decayed.hidden_HC - plain.hidden_HC, -0.1 * 0.5 * start.hidden_HC)
    assert torch.equal(decayed.out_H, plain.out_H)
    assert torch.equal(decayed.bias_H, plain.bias_H)
    everything, _ = trained(**ONE_STEP, weight_decay=0.5, nesterov=False)
    torch.testing.assert_close(everything.out_H - plain.out_H, -0.1 * 0.5 * start.out_H)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2))
    groups = parameter_groups(net, Optimiser(decay="weights"))
    assert [[p.ndim for p in group["params"]] for group in groups] == [[4, 2], [1, 1, 1, 1]]


def test_clipping_shortens_the_whole_gradient() -> None:
    gradient = gradient_of(Regression())
    norm = math.sqrt(sum((g**2).sum().item() for g in gradient.values()))
    start = Regression()
    for clip in (norm / 4, norm * 2):
        task, history = trained(**ONE_STEP, momentum=0, weight_decay=0, clip=clip)
        assert history[0]["gradient_norm"] == pytest.approx(norm, rel=1e-5)
        for name, g in gradient.items():
            moved = task.get_parameter(name) - start.get_parameter(name)
            torch.testing.assert_close(moved, -0.1 * min(1.0, clip / norm) * g, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("accumulate", [2, 3, 4])
def test_parts_of_a_batch_give_the_gradient_of_the_batch(accumulate: int) -> None:
    """Batches of 10 in parts of 5 and 5, of 4, 3 and 3, of 3, 3, 2 and 2."""
    whole, expected = trained(**SOME_STEPS)
    parts, history = trained(**SOME_STEPS, accumulate=accumulate)
    for name, value in whole.named_parameters():
        torch.testing.assert_close(parts.get_parameter(name), value, rtol=1e-5, atol=1e-6)
    for a, b in zip(history, expected, strict=True):
        for name in ("loss", "guess", "gradient_norm"):
            assert a[name] == pytest.approx(b[name], rel=1e-4)


def test_workers_exchange_gradients_once_per_batch() -> None:
    """8 batches in 3 parts each: the first two of each are computed without the others."""
    entered: list[int] = []

    class Together(nn.Module):
        def __init__(self, task: nn.Module) -> None:
            super().__init__()
            self.task = task

        def forward(self, *inputs: Any) -> Any:
            return self.task(*inputs)

        @contextmanager
        def no_sync(self) -> Iterator[None]:
            entered.append(1)
            yield

    train(Regression(), pixels(), numbers(), Optimiser(**SOME_STEPS, accumulate=3), seed=0, parallel=Together)
    assert len(entered) == 8 * 2


def test_average_by_hand() -> None:
    """Decays 2/11 and 3/12 of the first two steps, then the setting."""
    task = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    weight, norm = task[0].weight, task[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.num_batches_tracked is not None
    weight.data.fill_(0.0)
    average = Average(task, 0.26)
    expected = 0.0
    for step, (value, decay) in enumerate([(1.0, 2 / 11), (2.0, 3 / 12), (4.0, 0.26)]):
        weight.data.fill_(value)
        norm.running_mean.fill_(10 * value)
        norm.num_batches_tracked.fill_(step)
        average.update()
        expected = decay * expected + (1 - decay) * value
    with average.shown():
        assert weight.item() == pytest.approx(expected)
        assert norm.running_mean.item() == pytest.approx(10 * expected)
        assert norm.num_batches_tracked.item() == 2
    assert weight.item() == 4
    average.keep()
    assert weight.item() == pytest.approx(expected)


def test_the_average_is_what_is_kept_and_looked_at() -> None:
    seen: list[Tensor] = []

    def look(task: nn.Module, epoch: int) -> dict[str, float]:
        seen.append(task.get_parameter("out_H").detach().clone())
        return {"seen": float(epoch)}

    plain, losses = trained(**SOME_STEPS)
    averaged = Regression()
    config = Optimiser(**SOME_STEPS, ema=0.9)
    history = train(averaged, pixels(), numbers(), config, seed=0, hooks=Hooks(look=look))
    assert [h["loss"] for h in history] == [h["loss"] for h in losses]  # averaging does not touch the training
    assert [h["seen"] for h in history] == [1, 2]
    assert torch.equal(seen[-1], averaged.out_H)
    assert not torch.equal(averaged.out_H, plain.out_H)


def test_compiled_steps_are_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "COMPILER", "aot_eager")  # inductor takes minutes on a CPU
    plain, expected = trained(**SOME_STEPS)
    compiled, history = trained(**SOME_STEPS, compile=True)
    assert_close(compiled, plain)
    assert history[-1]["loss"] == pytest.approx(expected[-1]["loss"], rel=1e-5)


def assert_close(a: nn.Module, b: nn.Module, tolerance: float = 1e-5) -> None:
    for name, value in a.state_dict().items():
        torch.testing.assert_close(value, b.state_dict()[name], rtol=tolerance, atol=tolerance)


def test_float16_is_for_gpus() -> None:
    plain, expected = trained(**SOME_STEPS)
    task, history = trained(**SOME_STEPS, precision="float16")
    assert_same_weights(task, plain)
    assert without_times(history) == without_times(expected)


def test_bfloat16_is_for_cpus_too() -> None:
    plain, _ = trained(**SOME_STEPS, momentum=0)
    task, _ = trained(**SOME_STEPS, momentum=0, precision="bfloat16")
    assert_close(task, plain, 0.05)
    with pytest.raises(AssertionError):
        assert_close(task, plain, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_where_it_is_on(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's path, on a CPU: nearly the same weights, and a scale of gradients that a checkpoint carries."""
    plain, _ = trained(**SOME_STEPS, momentum=0)
    monkeypatch.setattr(learner, "low_precision", lambda config, device: dtype)
    seen: list[torch.dtype] = []

    class Watched(Regression):
        def forward(self, images_NHWC: Tensor, y_N: Tensor, generator: Generator) -> Any:
            seen.append((images_NHWC.flatten(1).float() @ self.hidden_HC.T).dtype)
            return super().forward(images_NHWC, y_N, generator)

    task, saved = Watched(), []
    config = Optimiser(**SOME_STEPS, momentum=0)
    history = train(task, pixels(), numbers(), config, seed=0, hooks=Hooks(save=saved.append))
    assert set(seen) == {dtype}
    assert all(math.isfinite(h["gradient_norm"]) for h in history)
    assert task.out_H.dtype == torch.float32
    if dtype == torch.bfloat16:
        assert_close(task, plain, 0.05)
    scale = torch.load(io.BytesIO(saved[0]), weights_only=True)["scaler"]
    assert (scale != {}) == (dtype == torch.float16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_low_precision_on_a_gpu(precision: str) -> None:
    plain, task = Regression().cuda(), Regression().cuda()
    expected = train(plain, pixels(), numbers(), Optimiser(**SOME_STEPS), seed=0)
    history = train(task, pixels(), numbers(), Optimiser(**SOME_STEPS, precision=precision), seed=0)
    assert history[-1]["loss"] == pytest.approx(expected[-1]["loss"], rel=0.05)
    assert history[-1]["peak_gpu_memory_gb"] > 0


def test_a_step_that_overflows_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "low_precision", lambda config, device: torch.float16)
    task = Regression()
    steps = Learner(task, Optimiser())
    steps.connect(task, lambda module: module)
    x, y = torch.from_numpy(pixels().images_NHWC), torch.from_numpy(numbers())
    scales, moved = [], []
    for _ in range(4):
        before = task.out_H.detach().clone()
        values = steps.step(x, y * 1e35, Generator(), 0.1, 1.0)  # gradients beyond float32 when scaled
        scales.append(steps.state()["scaler"]["scale"])
        moved.append(not torch.equal(before, task.out_H))
        assert values["gradient_norm"] == 0
    assert moved == [False] * 4
    assert scales == [65536 / 2**k for k in (1, 2, 3, 4)]
    momentum = [state["momentum_buffer"] for state in steps.state()["optimiser"]["state"].values()]
    assert len(momentum) == 3
    assert not any(buffer.any() for buffer in momentum)  # nor is momentum touched, which may be uninitialised


def test_batch_norm_over_workers_is_refused_on_a_cpu() -> None:
    message = r"^optimiser.sync_batch_norm=True: torch has it for GPUs only, use False on CPUs$"
    with pytest.raises(ValueError, match=message):
        trained(**ONE_STEP, sync_batch_norm=True)


def test_no_worker_is_left_without_images() -> None:
    config = Optimiser(epochs=1, iterations_per_epoch=None, batch=4, drops=(), accumulate=2)
    with pytest.raises(ValueError, match=r"optimiser.batch=4: 40 images give batches of 4, too few for 3 workers x"):
        train(Regression(), pixels(), numbers(), config, seed=0, shard=Shard(0, 3))


def test_what_is_recorded() -> None:
    _, history = trained(**SOME_STEPS)
    for record in history:
        assert {"loss", "lr", "gradient_norm", "images_per_second", "input_wait", "peak_memory_gb"} <= record.keys()
        assert 0 < record["input_wait"] < 1
        assert 0.05 < record["peak_memory_gb"] < 100
        assert record["gradient_norm"] > 0


@pytest.mark.parametrize(
    ("loss", "steps", "complete", "before", "failed"),
    [
        (math.nan, 1, False, 0, True),
        (math.inf, 1, False, 0, True),
        (6.1, 49, False, 1000, False),  # too few steps for a mean
        (6.1, 50, False, 0, True),  # above 3 times 2
        (5.9, 50, False, 0, False),
        (6.1, 10, True, 30, False),  # too early
        (6.1, 10, True, 40, True),  # a short epoch, later
    ],
)
def test_when_a_run_has_failed(loss: float, steps: int, complete: bool, before: int, failed: bool) -> None:
    assert has_failed({"loss": loss, "gradient_norm": 1.0}, 2.0, steps, complete, before) == failed


def test_small_losses_may_grow_by_one() -> None:
    for start, loss, failed in [(0.1, 1.05, False), (0.1, 1.15, True), (-4.0, 3.9, False), (-4.0, 4.1, True)]:
        assert has_failed({"loss": loss, "gradient_norm": 1.0}, start, 100, True, 0) == failed
    assert has_failed({"loss": 1.0, "gradient_norm": math.nan}, 1.0, 1, False, 0)


def test_a_loss_that_may_rise_fails_when_it_is_no_number() -> None:
    assert not has_failed({"loss": 30.0, "gradient_norm": 1.0}, 2.0, 100, True, 0, may_rise=True)
    assert has_failed({"loss": math.inf, "gradient_norm": 1.0}, 2.0, 100, True, 0, may_rise=True)
