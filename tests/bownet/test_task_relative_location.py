"""RelLoc: its loss against a loop over pairs of patches, and that it learns where things are."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from torch import Generator, Tensor

from bownet.config import Net, Optimiser
from bownet.images import scenes
from bownet.images.augment import to_float
from bownet.images.relative_location import location_patches
from bownet.nets.build import build_backbone
from bownet.tasks.relative_location import RelativeLocationTask
from bownet.training import InMemory, train


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pictures(n: int, side: int) -> Tensor:
    return torch.from_numpy(scenes.draw_labelled(scenes.labels(n, scenes.BASE), side, seed=0))


def new_task() -> RelativeLocationTask:
    backbone = build_backbone(Net(arch="wrn-10-1"), seed=0)
    backbone.set_input_statistics((0.3, 0.4, 0.5), (0.2, 0.25, 0.3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return RelativeLocationTask(backbone)


def test_loss_equals_a_loop_over_pairs() -> None:
    """Each patch goes through the net alone, standardised once: by a net whose own statistics do nothing."""
    task = new_task().eval()
    loss, metrics = task(pictures(3, 32), None, seeded(4))
    patches = location_patches(to_float(pictures(3, 32)), seeded(4))
    plain = deepcopy(task.backbone)
    plain.set_input_statistics((0, 0, 0), (1, 1, 1))
    (into, _, out), total, right = task.head, 0.0, 0
    for i in range(3):
        feature = [plain(patch[None], ("pool",))["pool"][0] for patch in patches[i]]
        for j in range(8):
            pair = torch.cat([feature[j + 1], feature[0]])
            hidden = (into.weight @ pair + into.bias).clamp(min=0)  # type: ignore[operator]
            z = (out.weight @ hidden + out.bias).tolist()  # type: ignore[operator]
            total -= z[j] - math.log(sum(math.exp(v) for v in z))
            right += z.index(max(z)) == j
    assert len(hidden) == 1280
    assert loss.item() == pytest.approx(total / 24, rel=1e-5)
    assert metrics["accuracy"].item() == pytest.approx(right / 24)


def test_input_statistics_do_not_matter_and_stay() -> None:
    task = new_task().eval()
    before, _ = task(pictures(3, 32), None, seeded())
    task.backbone.set_input_statistics((0.5, 0.5, 0.5), (0.1, 0.2, 0.3))
    after, _ = task(pictures(3, 32), None, seeded())
    torch.testing.assert_close(before, after)
    assert task.backbone.input_std.tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_all_parameters_learn() -> None:
    task = new_task().train()
    loss, _ = task(pictures(4, 32), None, seeded())
    loss.backward()
    assert [name for name, p in task.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []
    assert loss.item() == pytest.approx(math.log(8), abs=0.5)  # it knows nothing yet


@pytest.mark.slow
def test_it_learns() -> None:
    """The sky is above and the ground below, so that the loss falls well under ln 8."""
    images = InMemory(pictures(192, 32).numpy())
    config = Optimiser(epochs=10, iterations_per_epoch=None, batch=8, schedule="cosine")
    history = train(new_task(), images, None, config, seed=0)
    assert history[-1]["loss"] < 0.85 * math.log(8)
    assert history[-1]["accuracy"] > 0.3
