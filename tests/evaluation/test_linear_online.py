"""Online linear classifiers: heads that learn in one pass learn as alone, and the network never moves."""

import numpy as np
import pytest
import torch
from torch import nn

from bownet.config import Linear, Net
from bownet.images import scenes
from bownet.nets.build import build_backbone
from bownet.training import Diverged, InMemory, train
from evaluation.crops import random_crops
from evaluation.linear_online import OnlineLinear, check_unchanged, fingerprint_of, new_heads, optimiser_of

CONFIG = Linear(epochs=2, batch=16, lr=0.05, drop_every=1, drop_factor=0.5, nesterov=True, batch_norm=True)
LABELS = scenes.labels(40, scenes.BASE[:4])
NUMBERS = np.searchsorted(np.unique(LABELS), LABELS)
IMAGES = InMemory(scenes.draw_labelled(LABELS, 16, 0, 0))


def task(*taps: str, batch_norm: bool = True) -> OnlineLinear:
    backbone = build_backbone(Net(arch="wrn-10-1"), 0)
    heads = new_heads(backbone, taps, "4x4", 16, 4, batch_norm, seed=3)
    return OnlineLinear(backbone, heads, "4x4", random_crops((0.3, 1.0), decoded=False))


def trained(made: OnlineLinear) -> OnlineLinear:
    train(made, IMAGES, NUMBERS, optimiser_of(CONFIG), seed=5)
    return made


@pytest.mark.parametrize("batch_norm", [True, False])
def test_each_head_is_what_it_would_be_alone(batch_norm: bool) -> None:
    taps = ("block1", "block3", "pool")
    together = trained(task(*taps, batch_norm=batch_norm))
    for tap in taps:
        before, alone = task(tap, batch_norm=batch_norm), trained(task(tap, batch_norm=batch_norm))
        for name, value in alone.heads[tap].state_dict().items():
            torch.testing.assert_close(together.heads[tap].state_dict()[name], value, rtol=1e-6, atol=1e-7)
        changed = [not torch.equal(a, b) for a, b in zip(alone.parameters(), before.parameters(), strict=True)]
        assert any(changed)


def test_a_loss_that_rises_until_the_rate_drops_is_no_failure() -> None:
    """As with the protocols' rates on the long features of a ResNet; a network that is trained so would have failed."""
    config = CONFIG.model_copy(update={"lr": 5.0, "epochs": 40, "drop_every": 25, "drop_factor": 0.001})
    losses = []
    for may_rise in (True, False):
        made = task("block3", batch_norm=False)
        made.may_rise &= may_rise
        if not may_rise:
            with pytest.raises(Diverged, match="it diverged, use a smaller lr"):
                train(made, IMAGES, NUMBERS, optimiser_of(config), seed=5)
            continue
        losses = [record["loss"] for record in train(made, IMAGES, NUMBERS, optimiser_of(config), seed=5)]
    assert max(losses) > 30 * np.log(4)
    assert losses[-1] < max(losses) / 3


def test_heads_have_the_pooled_size_and_norms_without_scale() -> None:
    heads = new_heads(build_backbone(Net(arch="wrn-10-1"), 0), ("block1", "pool"), "4x4", 16, 4, True, 0)
    norm, linear = heads["block1"]
    assert isinstance(norm, nn.BatchNorm1d)
    assert (norm.affine, norm.num_features, linear.in_features, linear.out_features) == (False, 256, 256, 4)
    assert heads["pool"][1].in_features == 64


def test_the_network_does_not_move_by_one_bit() -> None:
    made = task("block2", "pool")
    before = fingerprint_of(made.backbone)
    trained(made)
    assert fingerprint_of(made.backbone) == before
    assert before == fingerprint_of(build_backbone(Net(arch="wrn-10-1"), 0))
    check_unchanged(before, fingerprint_of(made.backbone))


class Moving(OnlineLinear):
    """Forgets that the network is frozen: its batch norms follow what they see."""

    def train(self, mode: bool = True) -> OnlineLinear:
        nn.Module.train(self, mode)
        return self


def test_a_network_that_moved_is_caught() -> None:
    made = task("pool")
    made.__class__ = Moving
    before = fingerprint_of(made.backbone)
    weights = [p.clone() for p in made.backbone.parameters()]
    trained(made)
    assert all(torch.equal(a, b) for a, b in zip(weights, made.backbone.parameters(), strict=True))
    with pytest.raises(RuntimeError, match="the frozen network has changed: sha256"):
        check_unchanged(before, fingerprint_of(made.backbone))


def test_a_fingerprint_sees_every_bit() -> None:
    net = build_backbone(Net(arch="wrn-10-1"), 0)
    before = fingerprint_of(net)
    with torch.no_grad():
        net.stem.weight[0, 1, 2, 0] += 1e-7
    assert fingerprint_of(net) != before


def test_the_schedule_is_the_protocols() -> None:
    """ImageNet: 28 epochs, x0.1 after 10 and 20."""
    imagenet = Linear(epochs=28, batch=256, lr=0.01, drop_every=10, drop_factor=0.1, weight_decay=1e-4, nesterov=True)
    optimiser = optimiser_of(imagenet)
    assert (optimiser.epochs, optimiser.batch, optimiser.drops, optimiser.drop_factor) == (28, 256, (10, 20), 0.1)
    assert (optimiser.lr, optimiser.weight_decay, optimiser.nesterov, optimiser.momentum) == (0.01, 1e-4, True, 0.9)
    assert optimiser_of(Linear()).drops == (10, 20, 30, 40, 50)


def test_decoded_windows_are_only_flipped() -> None:
    crops = random_crops((0.08, 1.0), decoded=True)
    assert (crops.crop_area, crops.crop_aspect) == ((1.0, 1.0), (1.0, 1.0))
    assert random_crops((0.08, 1.0), decoded=False).crop_area == (0.08, 1.0)
    assert crops.jitter_probability == crops.grey_probability == crops.blur_probability == 0
