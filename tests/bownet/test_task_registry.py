"""Tasks by name; what every task must hold: gradients of halves average to those of the whole; the guide's example."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import pytest
import torch
from torch import Generator, Tensor, nn

from bownet.config import Net, Optimiser, Perturbation, Student, Teacher
from bownet.images import scenes
from bownet.nets.build import build_backbone
from bownet.nets.heads import CosineHead
from bownet.tasks import registry
from bownet.tasks.bow import BowTask, OnlineWords
from bownet.tasks.deeper_clustering import DeeperClusteringTask
from bownet.tasks.registry import TASKS, Entry, Ingredients, build_task, entry
from bownet.tasks.rotation import RotationTask
from bownet.training import InMemory, train
from bownet.words.vocabulary_file import Vocabulary

NET = Net(arch="wrn-10-1")
NOTHING = Perturbation(crop_area=(1, 1), crop_aspect=(1, 1), jitter_probability=0, grey_probability=0)
GUIDE = Path(__file__).parents[2] / "docs" / "tasks.md"


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def ingredients(kind: str, **changes: Any) -> Ingredients:
    teacher = Teacher(kind=kind, arch=NET.arch, clusters=5, head_layers=1, pad=3)  # type: ignore[arg-type]
    student = Student(arch=NET.arch, cutmix=False)
    given: dict[str, Any] = {"backbone": build_backbone(NET, 0), "teacher": teacher, "student": student, "seed": 0}
    return Ingredients(**(given | {"classes": 4} | changes))


def test_names_are_those_of_the_settings() -> None:
    kinds = get_args(Teacher.model_fields["kind"].annotation)
    assert set(TASKS) == set(kinds) - {"random", "checkpoint"}


def test_unknown_name_lists_the_known_ones() -> None:
    for ask in (entry, lambda name: build_task(name, ingredients("rotation"))):
        with pytest.raises(
            ValueError,
            match=r"teacher.kind='jigsaw': tasks that train are rotation, relative_location, deeper_clustering, "
            r"supervised, cosine_classifier",
        ):
            ask("jigsaw")


@pytest.mark.parametrize("name", TASKS)
def test_the_seed_decides_and_global_state_is_left_alone(name: str) -> None:
    def weights(seed: int) -> list[Tensor]:
        return list(build_task(name, ingredients(name, seed=seed)).parameters())

    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, again, other = weights(1), weights(1), weights(2)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(map(torch.equal, one, again))
    assert not all(map(torch.equal, one, other))


def test_a_rotation_task_is_what_it_was_without_the_registry() -> None:
    torch.manual_seed(7)
    plain = RotationTask(build_backbone(NET, 0), 1, 3)
    built = build_task("rotation", ingredients("rotation", seed=7))
    assert all(map(torch.equal, plain.state_dict().values(), built.state_dict().values()))


@pytest.mark.parametrize("name", [name for name in TASKS if TASKS[name].labels])
def test_labels_are_needed(name: str) -> None:
    with pytest.raises(ValueError, match=f"teacher.kind={name}: learns from labels, and these images have none"):
        build_task(name, ingredients(name, classes=None))
    head = build_task(name, ingredients(name)).head
    assert isinstance(head, CosineHead if name == "cosine_classifier" else nn.Linear)


def test_what_was_cropped_when_it_was_decoded_is_not_cropped_again() -> None:
    for name in ("rotation", "supervised", "cosine_classifier"):
        assert [build_task(name, ingredients(name, cropped=cropped)).pad for cropped in (False, True)] == [3, 0]
        assert TASKS[name].cut == "shifted"
    task = build_task("deeper_clustering", ingredients("deeper_clustering", cropped=True))
    assert isinstance(task, DeeperClusteringTask)
    assert task.perturbation == Perturbation(crop_area=(1, 1), crop_aspect=(1, 1))
    assert TASKS["deeper_clustering"].cut == "random"
    assert ingredients("deeper_clustering").perturbation == Perturbation()


def ramps(n: int) -> Tensor:
    """Grey images whose 3x3 cells rise or fall from top to bottom, the same in a mirror, uint8 [n, 24, 24, 3].

    No draw of a flip, of grey or of a place in a cell changes what a standardised patch of them looks like.
    """
    up = torch.randint(0, 2, (n, 3, 2), generator=seeded(1))[:, :, [0, 1, 0]].bool()
    ramp = torch.arange(0, 240, 30)[None, None, :, None, None]
    cells = torch.where(up[:, :, None, :, None], ramp, 210 - ramp).expand(n, 3, 8, 3, 8)
    shade = torch.arange(n)[:, None, None, None]
    return (cells.reshape(n, 24, 24, 1) + shade).expand(n, 24, 24, 3).to(torch.uint8)


def undisturbed(name: str) -> tuple[nn.Module, Tensor | None]:
    """A task whose loss depends on the images alone, and targets of 16 of them."""
    student = Student(arch=NET.arch, cutmix=False, perturbation=NOTHING)
    words = torch.randint(0, 6, (16, 1, 6, 6), generator=seeded(2))
    match name:
        case "bow" | "bow linear" | "bow pyramid":
            config = student.model_copy(update={"head": "linear"} if "linear" in name else {"pyramid": "pyr" in name})
            return BowTask(build_backbone(NET, 0), 6, config), words
        case "bow perturbed":
            vocabulary = Vocabulary(torch.rand(6, 64, generator=seeded(4)), "a teacher", "block3")
            online = OnlineWords(build_backbone(NET, 9), vocabulary)
            return BowTask(build_backbone(NET, 0), 6, student.model_copy(update={"target": "perturbed"}), online), None
    task = build_task(name, ingredients(name, student=student, teacher=Teacher(arch=NET.arch, clusters=5, pad=0)))
    if isinstance(task, DeeperClusteringTask):
        return task, torch.from_numpy(task.renew(0, [ramps(16)]))
    return task, torch.arange(16) % 4 if TASKS[name].labels else None


@pytest.mark.parametrize("name", ["bow", "bow linear", "bow pyramid", "bow perturbed", *TASKS])
def test_gradients_of_halves_average_to_those_of_the_batch(name: str) -> None:
    """What two workers compute together, with batch norm in eval mode, is what one computes alone."""
    task, targets = undisturbed(name)
    task.eval()

    def gradients(rows: slice, seed: int) -> list[Tensor]:
        task.zero_grad()
        loss, _ = task(ramps(16)[rows], None if targets is None else targets[rows], seeded(seed))
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in task.parameters() if p.grad is not None)]

    whole, first, second = gradients(slice(16), 0), gradients(slice(8), 1), gradients(slice(8, 16), 2)
    assert len(whole) == 1 + len(list(task.parameters()))
    assert not torch.allclose(first[1], second[1], rtol=1e-2)
    for a, b, c in zip(whole, first, second, strict=True):
        torch.testing.assert_close((b + c) / 2, a, rtol=1e-3, atol=1e-5 * float(a.abs().max()) + 1e-7)


@pytest.mark.parametrize("name", ["bow", "bow linear", "bow pyramid", "bow perturbed", *TASKS])
def test_bfloat16_moves_every_weight(name: str) -> None:
    """Losses of both precisions are near each other, and every weight has a gradient."""
    task, targets = undisturbed(name)
    plain, _ = task(ramps(16), targets, seeded())
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = task(ramps(16), targets, seeded())
    loss.backward()
    assert float(loss) == pytest.approx(float(plain), rel=0.05)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in task.parameters())


def test_the_example_of_the_guide_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    text = GUIDE.read_text("utf-8")
    assert len(text.splitlines()) < 60
    task_file, registration = (dedent(code) for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    monkeypatch.setattr(registry, "TASKS", dict(TASKS))
    names: dict[str, Any] = {"TASKS": registry.TASKS, "Entry": Entry}
    exec(compile(task_file + registration, str(GUIDE), "exec"), names)
    task = build_task("upside_down", ingredients("rotation"))
    images = InMemory(scenes.draw_labelled(scenes.labels(256, scenes.BASE), 16, seed=0))
    config = Optimiser(epochs=12, iterations_per_epoch=None, batch=8, schedule="cosine")
    history = train(task, images, None, config, seed=0)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    assert history[-1]["accuracy"] > 0.7
