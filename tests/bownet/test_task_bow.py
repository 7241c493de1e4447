"""Variants of BoWNet's task: a linear Ω, the spatial pyramid, words of the perturbed image from a frozen teacher."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from bownet.config import Net, Optimiser, Perturbation, Student
from bownet.images import scenes
from bownet.images.augment import to_float
from bownet.images.cutmix import draw_mix
from bownet.images.perturb import perturb
from bownet.nets.build import build_backbone
from bownet.nets.heads import omega
from bownet.nets.taps import Backbone
from bownet.tasks.bow import BowTask, OnlineWords, soft_cross_entropy
from bownet.training import InMemory, train
from bownet.words.vocabulary import feature_maps
from bownet.words.vocabulary_file import Vocabulary

NET = Net(arch="wrn-10-1")
NOTHING = Perturbation(crop_area=(1, 1), crop_aspect=(1, 1), jitter_probability=0, grey_probability=0)
WORDS = 7


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pictures(n: int, side: int = 24) -> Tensor:
    return torch.from_numpy(scenes.draw_labelled(scenes.labels(n, scenes.BASE), side, seed=0))


def symmetric(n: int = 4, side: int = 16) -> Tensor:
    """The same in a mirror, so that a flip is a no-op."""
    half = torch.randint(0, 256, (n, side, side // 2, 3), generator=seeded(1), dtype=torch.uint8)
    return torch.cat([half, half.flip(2)], 2)


def word_maps(n: int, side: int) -> Tensor:
    return torch.randint(0, WORDS, (n, 1, side, side), generator=seeded(2)).to(torch.uint16)


def task_of(config: Student, online: OnlineWords | None = None) -> BowTask:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BowTask(build_backbone(config.net, seed=0), WORDS, config, online)


def teacher_and_words(drawn: Tensor) -> tuple[Backbone, Vocabulary]:
    """A net that is not in eval mode, and some of its own features as words."""
    teacher = build_backbone(NET, seed=5)
    features = feature_maps(teacher.eval(), drawn, "block3").permute(0, 2, 3, 1).flatten(0, 2)
    rows = torch.randperm(len(features), generator=seeded(3))[:WORDS]
    return teacher.train(), Vocabulary(features[rows].clone(), "a teacher", "block3")


def cross_entropy(z: list[float], y: list[float]) -> float:
    log_sum = max(z) + math.log(sum(math.exp(v - max(z)) for v in z))
    return -sum(p * (v - log_sum) for p, v in zip(y, z, strict=True))


def bag(words: list[int]) -> list[float]:
    return [words.count(k) / len(words) for k in range(WORDS)]


def logits_of(task: BowTask, x_NCHW: Tensor) -> list[list[float]]:
    """γ f·w/|w|, or f·w + b, with loops."""
    rows = []
    for f in task.backbone(x_NCHW, ("pool",))["pool"].tolist():
        if task.config.head == "linear":
            weights, biases = task.head.weight.tolist(), task.head.bias.tolist()  # type: ignore[operator]
            rows.append([sum(map(float.__mul__, f, w)) + b for w, b in zip(weights, biases, strict=True)])
        else:
            weights, gamma = task.head.weight_KC.tolist(), task.head.gamma.item()  # type: ignore[operator]
            rows.append([gamma * sum(map(float.__mul__, f, w)) / math.hypot(*w) for w in weights])
    return rows


def test_defaults_draw_the_weights_that_they_always_drew() -> None:
    task = task_of(Student(arch=NET.arch))
    torch.manual_seed(0)
    assert torch.equal(task.head.weight_KC, torch.randn(WORDS, 64) * (2 / 64) ** 0.5)  # type: ignore[arg-type]
    assert set(task.state_dict()) - {f"backbone.{k}" for k in task.backbone.state_dict()} == {
        "head.weight_KC",
        "head.gamma",
    }


def test_linear_omega_equals_a_loop() -> None:
    task = task_of(Student(arch=NET.arch, head="linear", cutmix=False, perturbation=NOTHING)).eval()
    torch.nn.init.normal_(task.head.bias, generator=seeded())  # type: ignore[arg-type]
    words = word_maps(4, 4)
    loss, metrics = task(symmetric(), words, seeded())
    targets = [bag(words[i, 0, 1:-1, 1:-1].flatten().tolist()) for i in range(4)]
    losses = [cross_entropy(z, y) for z, y in zip(logits_of(task, to_float(symmetric())), targets, strict=True)]
    assert loss.item() == pytest.approx(sum(losses) / 4, rel=1e-5)
    assert set(metrics) == {"floor"}  # there is no γ


def test_unknown_omega_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"student.head='round': known are cosine, linear"):
        omega("round", 3, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["cosine", "linear"])
@pytest.mark.parametrize("side", [5, 6])
def test_pyramid_is_the_mean_of_five_losses(head: str, side: int) -> None:
    """Outputs 0..K-1 are the whole image's, then come the quarters row by row, each with a softmax of its own."""
    task = task_of(Student(arch=NET.arch, head=head, pyramid=True, cutmix=False, perturbation=NOTHING)).eval()
    words = word_maps(4, side)
    loss, metrics = task(symmetric(), words, seeded())
    inner = side - 2
    halves = [range((inner + 1) // 2), range(inner // 2, inner)]
    places = [(range(inner), range(inner))] + [(rows, columns) for rows in halves for columns in halves]
    total = floor = 0.0
    for i, z in enumerate(logits_of(task, to_float(symmetric()))):
        assert len(z) == 5 * WORDS
        for b, (rows, columns) in enumerate(places):
            y = bag([int(words[i, 0, 1 + r, 1 + c]) for r in rows for c in columns])
            total += cross_entropy(z[b * WORDS : (b + 1) * WORDS], y) / 20
            floor += sum(-p * math.log(p) for p in y if p) / 20
    assert loss.item() == pytest.approx(total, rel=1e-5)
    assert metrics["floor"].item() == pytest.approx(floor, rel=1e-5)


def test_pyramid_of_mixed_images_has_mixed_targets() -> None:
    task = task_of(Student(arch=NET.arch, pyramid=True, perturbation=NOTHING)).eval()
    words, draws = word_maps(4, 4), seeded(6)
    loss, _ = task(symmetric(), words, seeded(6))
    x = perturb(symmetric(), NOTHING, draws)
    mix = draw_mix(4, 16, 16, draws)
    assert 0.05 < mix.lam < 0.95
    places = [(slice(1, 3), slice(1, 3)), *((slice(r, r + 1), slice(c, c + 1)) for r in (1, 2) for c in (1, 2))]
    total = 0.0
    for i, z in enumerate(logits_of(task, mix.images(x))):
        for b, place in enumerate(places):
            own, other = (bag(words[j, 0][place].flatten().tolist()) for j in (i, int(mix.partner_N[i])))
            y = [mix.lam * p + (1 - mix.lam) * q for p, q in zip(own, other, strict=True)]
            total += cross_entropy(z[b * WORDS : (b + 1) * WORDS], y) / 20
    assert loss.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("cutmix", [False, True])
def test_words_of_the_perturbed_image_before_it_is_mixed(cutmix: bool) -> None:
    drawn = pictures(6)
    teacher, vocabulary = teacher_and_words(drawn)
    online = OnlineWords(teacher, vocabulary)
    task = task_of(Student(arch=NET.arch, target="perturbed", cutmix=cutmix), online).eval()
    loss, _ = task(drawn, None, seeded(1))
    draws = seeded(1)  # the same draws, taken apart
    x = perturb(drawn, Perturbation(), draws)
    map_NCHW = teacher.eval()(x, ("block3",))["block3"]
    y = []
    for i in range(6):
        vectors = map_NCHW[i, :, 1:-1, 1:-1].flatten(1).T
        y.append(bag([int(((v - vocabulary.centroids_KC) ** 2).sum(1).argmin()) for v in vectors]))
    if cutmix:
        mix = draw_mix(6, 24, 24, draws)
        assert 0.05 < mix.lam < 0.95
        others = [y[j] for j in mix.partner_N.tolist()]
        y = [
            [mix.lam * p + (1 - mix.lam) * q for p, q in zip(*two, strict=True)] for two in zip(y, others, strict=True)
        ]
        x = mix.images(x)
    expected = sum(map(cross_entropy, logits_of(task, x), y)) / 6
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    cached = vocabulary.assign(feature_maps(teacher, drawn, "block3"))[:, None]
    clean, _ = task_of(Student(arch=NET.arch, cutmix=cutmix)).eval()(drawn, cached, seeded(1))
    assert clean.item() != pytest.approx(expected, rel=1e-3)


def test_words_that_are_passed_along_do_not_matter() -> None:
    drawn = pictures(4)
    task = task_of(Student(arch=NET.arch, target="perturbed"), OnlineWords(*teacher_and_words(drawn))).eval()
    assert torch.equal(task(drawn, None, seeded())[0], task(drawn, word_maps(4, 6), seeded())[0])


def test_teacher_is_outside_of_the_task_and_does_not_move_by_one_bit() -> None:
    drawn = pictures(6)
    teacher, vocabulary = teacher_and_words(drawn)
    online = OnlineWords(teacher, vocabulary)
    config = Student(arch=NET.arch, target="perturbed")
    task = task_of(config, online).train()
    without = task_of(Student(arch=NET.arch))
    assert list(task.state_dict()) == list(without.state_dict())
    assert len(list(task.modules())) == len(list(without.modules()))
    assert not online.teacher.training
    assert not any(p.requires_grad for p in online.teacher.parameters())
    teacher.train()(torch.rand(4, 3, 24, 24), ("pool",))  # what becomes of the caller's net is not its concern

    before = {name: value.clone() for name, value in online.teacher.state_dict().items()}
    words = online(to_float(drawn))
    start = {name: value.clone() for name, value in task.state_dict().items()}
    optimiser = torch.optim.SGD([*task.parameters(), *online.teacher.parameters()], lr=0.1, weight_decay=0.1)
    for step in range(3):
        task.train()
        loss, _ = task(drawn, None, seeded(step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert not online.teacher.training
    assert all(torch.equal(before[name], value) for name, value in online.teacher.state_dict().items())
    assert torch.equal(words, online(to_float(drawn)))
    assert all(not torch.equal(start[name], value) for name, value in task.named_parameters())
    task.double()
    assert {p.dtype for p in online.teacher.parameters()} == {torch.float32}


def test_words_do_not_depend_on_the_precision_of_training() -> None:
    drawn = pictures(6)
    online = OnlineWords(*teacher_and_words(drawn))
    expected = online(to_float(drawn))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(online(to_float(drawn)), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_teacher_follows_the_images_to_their_device() -> None:
    drawn = pictures(6)
    task = task_of(Student(arch=NET.arch, target="perturbed"), OnlineWords(*teacher_and_words(drawn))).cuda()
    loss, _ = task(drawn.cuda(), None, seeded())
    assert loss.is_cuda


def test_perturbed_targets_need_a_teacher_with_as_many_words() -> None:
    config = Student(arch=NET.arch, target="perturbed")
    with pytest.raises(ValueError, match=r"student.target=perturbed: needs the teacher and its vocabulary"):
        BowTask(build_backbone(NET, 0), WORDS, config)
    teacher, vocabulary = teacher_and_words(pictures(4))
    with pytest.raises(ValueError, match=r"num_words=8: the vocabulary has 7 words"):
        BowTask(build_backbone(NET, 0), 8, config, OnlineWords(teacher, vocabulary))
    with pytest.raises(ValueError, match=r"tap='block9': WideResNet has block1"):
        OnlineWords(teacher, Vocabulary(vocabulary.centroids_KC, "a teacher", "block9"))


@pytest.mark.parametrize(
    ("changes", "least"), [({"head": "linear"}, 0.8), ({"pyramid": True}, 0.8), ({"target": "perturbed"}, 0.9)]
)
def test_variants_learn(changes: dict[str, object], least: float) -> None:
    """Words of a clean image: the step of brightness it is in. Of a perturbed one: those of a random teacher."""
    drawn = pictures(96, side=16)
    bright = drawn.float().mean((1, 2, 3)).argsort().argsort() * WORDS // 96
    targets = np.broadcast_to(bright.numpy()[:, None, None, None], (96, 1, 4, 4))
    mild = Perturbation(crop_area=(0.5, 1), jitter_probability=0, grey_probability=0)
    config = Student(arch=NET.arch, cutmix=False, perturbation=mild, **changes)  # type: ignore[arg-type]
    online = OnlineWords(*teacher_and_words(drawn)) if config.target == "perturbed" else None
    optimiser = Optimiser(epochs=10, iterations_per_epoch=None, batch=16, lr=0.05, drops=())
    history = train(task_of(config, online), InMemory(drawn.numpy()), targets, optimiser, seed=0)
    start, end = (h["loss"] - h["floor"] for h in (history[0], history[-1]))
    assert end < least * start


def test_the_loss_is_in_single_precision_under_autocast() -> None:
    """To the last bit that of the logits that bfloat16 gave: 2.0 and 2.015625 are neighbours there."""
    logits = torch.tensor([[2.0, 2.015625]], dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        loss = soft_cross_entropy(logits, torch.tensor([[1.0, 0.0]]))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(1 + math.exp(0.015625)), rel=1e-6)
