"""Deeper Clustering: its loss against a loop, clusters that are renewed, kept and resumed, and that it learns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from bownet.config import Net, Optimiser, Perturbation
from bownet.images import scenes
from bownet.images.cutmix import draw_mix
from bownet.images.perturb import perturb
from bownet.nets.build import build_backbone
from bownet.tasks.deeper_clustering import DeeperClusteringTask, turned
from bownet.tasks.rotation import RotationTask
from bownet.training import Hooks, InMemory, Renews, train
from bownet.words.vocabulary import feature_maps

NET = Net(arch="wrn-10-1")
MILD = Perturbation(crop_area=(0.6, 1), jitter_probability=0, grey_probability=0)
CLUSTERS = 6


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pictures(n: int, side: int = 16) -> Tensor:
    return torch.from_numpy(scenes.draw_labelled(scenes.labels(n, scenes.BASE), side, seed=0))


def new_task(
    perturbation: Perturbation = MILD, cutmix: bool = True, seed: int = 0, clusters: int = CLUSTERS
) -> DeeperClusteringTask:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = build_backbone(NET, seed=0)
        return DeeperClusteringTask(backbone, clusters, 3, 1, perturbation, cutmix, seed)


def never() -> Iterator[Tensor]:
    raise AssertionError("images are read only when clusters are made")
    yield


def test_turns_by_transposing_and_flipping() -> None:
    x = torch.arange(6 * 9.0).reshape(6, 1, 3, 3)
    out, angle = turned(x)
    assert angle.tolist() == [0, 1, 2, 3, 0, 1]
    assert torch.equal(out[0], x[0])
    assert out[1, 0].tolist() == [[11, 14, 17], [10, 13, 16], [9, 12, 15]]  # a quarter, counter-clockwise
    assert torch.equal(out[2, 0], x[2, 0].flip(0, 1))
    assert out[3, 0].tolist() == [[33, 30, 27], [34, 31, 28], [35, 32, 29]]


@pytest.mark.parametrize("cutmix", [True, False])
def test_loss_equals_a_loop(cutmix: bool) -> None:
    """Clusters of 20 images weighted by their size, one angle per image, mixed before it is turned."""
    task = new_task(Perturbation(), cutmix).eval()
    cluster_N = torch.from_numpy(task.renew(0, [pictures(20)]))
    loss, metrics = task(pictures(20)[:8], cluster_N[:8], seeded(1))
    draws = seeded(1)  # the same draws, taken apart
    x = perturb(pictures(20)[:8], Perturbation(), draws)
    lam, partner = 1.0, list(range(8))
    if cutmix:
        mix = draw_mix(8, 16, 16, draws)
        x, lam, partner = mix.images(x), mix.lam, mix.partner_N.tolist()
        assert 0.05 < lam < 0.95
    sizes = Counter(cluster_N.tolist())
    directions = [(row / row.norm()).tolist() for row in task.head.weight_KC]
    of_clusters = of_angles = 0.0
    for i in range(8):
        features = task.backbone(torch.rot90(x[i : i + 1], i % 4, (2, 3)), ("block3", "pool"))
        f = features["pool"][0].tolist()
        z = [3.0 * sum(map(float.__mul__, f, w)) for w in directions]
        log_sum = math.log(sum(map(math.exp, z)))
        for share, j in ((lam, i), (1 - lam, partner[i])):
            k = int(cluster_N[j])
            of_clusters += share * 20 / len(sizes) / sizes[k] * (log_sum - z[k]) / 8
        a = task.rotation(features["block3"])[0].tolist()
        of_angles += (math.log(sum(map(math.exp, a))) - a[i % 4]) / 8
    assert loss.item() == pytest.approx(of_clusters + of_angles, rel=1e-5)
    assert metrics["cluster_loss"].item() == pytest.approx(of_clusters, rel=1e-5)
    assert metrics["rotation_loss"].item() == pytest.approx(of_angles, rel=1e-5)


def test_clusters_are_those_of_k_means_over_unit_features() -> None:
    """Every image is nearest to the mean of its own cluster, and weights even out the sizes of clusters."""
    task = new_task().train()
    before = {name: value.clone() for name, value in task.backbone.state_dict().items()}
    cluster_N = task.renew(0, pictures(60).split(7))
    assert task.training
    assert task.backbone.training
    assert all(torch.equal(before[name], value) for name, value in task.backbone.state_dict().items())
    f_NC = feature_maps(task.backbone.eval(), pictures(60), "pool")
    f_NC = f_NC / f_NC.norm(dim=1, keepdim=True)
    means = torch.stack([f_NC[cluster_N == k].mean(0) for k in range(CLUSTERS)])
    assert (torch.cdist(f_NC, means).argmin(1).numpy() == cluster_N).mean() > 0.95  # k-means may not have converged
    weight_N = task.weight_K[cluster_N]
    assert weight_N.mean().item() == pytest.approx(1)
    assert [weight_N[cluster_N == k].sum().item() for k in range(CLUSTERS)] == pytest.approx([60 / CLUSTERS] * CLUSTERS)


def test_images_of_one_kind_have_one_cluster() -> None:
    colours = torch.tensor([[250, 20, 20], [20, 250, 20], [20, 20, 250], [240, 240, 240]])
    noise = torch.randint(-9, 10, (40, 16, 16, 3), generator=seeded())
    images = (colours.repeat(10, 1)[:, None, None] + noise).clamp(0, 255).to(torch.uint8)
    cluster_N = new_task(clusters=4).renew(0, [images])
    assert [len(set(cluster_N[i::4])) for i in range(4)] == [1] * 4
    assert len(set(cluster_N[:4])) == 4


def test_clusters_are_renewed_every_third_epoch_and_omega_with_them() -> None:
    task, images = new_task(), pictures(40)
    assert isinstance(task, Renews)
    assert not isinstance(RotationTask(build_backbone(NET, 0), 1, 0), Renews)
    weight = task.head.weight_KC
    first, drawn = task.renew(0, [images]).copy(), weight.detach().clone()
    with torch.no_grad():
        task.head.gamma.fill_(9.0)
    for epoch in (1, 2):
        assert task.renew(epoch, never()) is None
    assert torch.equal(weight, drawn)
    assert task.head.gamma.item() == 9
    task.backbone.load_state_dict(build_backbone(NET, seed=8).state_dict())
    second = task.renew(3, [images])
    assert not np.array_equal(second, first)
    assert task.head.weight_KC is weight  # for the optimiser
    assert not torch.equal(weight, drawn)
    assert weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.15)
    assert task.head.gamma.item() == 3


def test_the_seed_decides() -> None:
    made = []
    for seed, global_seed in ((1, 1), (1, 2), (2, 1)):
        task = new_task(seed=seed)
        torch.manual_seed(global_seed)
        made.append((task.renew(0, pictures(60).split(20)).tolist(), task.head.weight_KC.tolist()))
    assert made[0] == made[1]
    assert made[0][0] != made[2][0]
    assert made[0][1] != made[2][1]


def test_fewer_images_than_clusters() -> None:
    with pytest.raises(ValueError, match=r"teacher.clusters=6: there are 5 images, use fewer clusters"):
        new_task().renew(0, [pictures(5)])


def test_fewer_different_images_than_clusters() -> None:
    with pytest.raises(ValueError, match=r"^teacher.clusters=6: only 5 of the 10 feature vectors differ, use 1..5 or"):
        new_task().renew(0, [pictures(5), pictures(5)])


def test_the_loss_is_in_single_precision_under_autocast() -> None:
    """To the last bit that of the logits that bfloat16 gave."""
    task = new_task(Perturbation(), cutmix=False).eval()
    cluster_N = torch.from_numpy(task.renew(0, [pictures(20)]))
    with torch.autocast("cpu", torch.bfloat16):
        _, metrics = task(pictures(20), cluster_N, seeded(1))
        x, _ = turned(perturb(pictures(20), Perturbation(), seeded(1)))
        logits_NK = task.head(task.backbone(x, ("pool",))["pool"])
    assert logits_NK.dtype == torch.bfloat16
    log_NK = torch.log_softmax(logits_NK.float(), 1)
    expected = -(task.weight_K[cluster_N] * log_NK[torch.arange(20), cluster_N]).sum() / 20
    assert metrics["cluster_loss"].dtype == torch.float32
    torch.testing.assert_close(metrics["cluster_loss"], expected.detach(), rtol=1e-6, atol=0)


def test_all_parameters_learn() -> None:
    task = new_task().train()
    cluster_N = torch.from_numpy(task.renew(0, [pictures(16)]))
    loss, _ = task(pictures(16), cluster_N, seeded())
    loss.backward()
    assert [name for name, p in task.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


@pytest.mark.slow
def test_it_learns() -> None:
    images = pictures(256)
    config = Optimiser(epochs=20, iterations_per_epoch=None, batch=16, schedule="cosine")
    task = new_task(cutmix=False)
    task.renew_every = 20
    history = train(task, InMemory(images.numpy()), None, config, seed=0)
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert history[-1]["cluster_loss"] < 0.6 * history[0]["cluster_loss"]
    assert history[-1]["rotation_loss"] < 0.9 * math.log(4)


@pytest.mark.parametrize("stopped", [1, 3])
def test_continues_bit_for_bit(stopped: int) -> None:
    """A run that goes on from a checkpoint has the clusters of the one that was stopped, or makes the same new ones."""
    images, saved = InMemory(pictures(32).numpy()), []
    config = Optimiser(epochs=5, iterations_per_epoch=None, batch=16, drops=())
    task, resumed = new_task(), new_task()
    train(task, images, None, config, seed=0, hooks=Hooks(save=saved.append))
    train(resumed, images, None, config, seed=0, resume=saved[stopped - 1])
    for name, value in task.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
