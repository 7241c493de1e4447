"""Reduced scale: the same structure, smaller; marked; and on scenes everything that is missing is drawn."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import run_full

from bownet.config import Experiment
from pipelines.command_line import start_of
from pipelines.full import experiment
from pipelines.machine import Machine
from pipelines.plan import Plan
from pipelines.presets import PRESETS
from pipelines.scale import of_kind, reduced
from pipelines.store import Store

STRUCTURE = ("rounds", "judged", "evaluators", "seed", "name")
TINY = ("--scale", "tiny", "--data.kind", "scenes")


@pytest.mark.parametrize("scale", ["small", "tiny"])
@pytest.mark.parametrize("name", PRESETS)
def test_the_structure_stays_and_nothing_grows(name: str, scale: Any) -> None:
    whole, part = PRESETS[name](), reduced(PRESETS[name](), scale)
    assert part.scale == scale
    for field in STRUCTURE:
        assert getattr(part, field) == getattr(whole, field)
    for field in ("bow", "cutmix", "head", "pyramid", "target", "perturbation", "drop_border"):
        assert getattr(part.student, field) == getattr(whole.student, field)
    assert part.teacher.kind == whole.teacher.kind
    assert part.vocabulary.tap == whole.vocabulary.tap
    assert [one.tap for one in part.per_round] == [one.tap for one in whole.per_round]
    assert part.linear.taps == whole.linear.taps
    assert part.vocabulary.size <= whole.vocabulary.size
    assert part.data.image_size <= whole.data.image_size
    for a, b in ((part.teacher, whole.teacher), (part.student, whole.student)):
        assert a.optimiser.epochs <= b.optimiser.epochs
        assert a.optimiser.batch <= b.optimiser.batch
        assert a.optimiser.iterations_per_epoch is None
    assert part.data.train is not None
    assert part.data.train <= 10_000


def test_numbers_by_hand() -> None:
    small, tiny = (reduced(PRESETS["cifar100/bownet"](), scale) for scale in ("small", "tiny"))
    assert (small.student.arch, small.vocabulary.size, small.data.train) == ("wrn-10-2", 512, 10_000)
    assert (tiny.student.arch, tiny.vocabulary.size, tiny.data.train) == ("wrn-10-1", 8, 120)
    assert (small.student.optimiser.epochs, small.student.optimiser.drops) == (25, (10, 20))  # 12/30 and 24/30 of 25
    assert (small.teacher.optimiser.epochs, small.teacher.optimiser.drops) == (6, (2, 5))
    assert (tiny.student.optimiser.epochs, tiny.student.optimiser.drops) == (2, (1,))
    assert tiny.student.optimiser.base_lr == pytest.approx(0.1 * 32 / 128)
    assert small.student.optimiser.base_lr == pytest.approx(0.1)
    assert small.linear == PRESETS["cifar100/bownet"]().linear
    sizes = [reduced(PRESETS[f"cifar100/vocabulary-{k}"](), "tiny").vocabulary.size for k in (512, 1024, 2048, 4096)]
    assert sizes == [2, 4, 8, 16]


def test_scenes_stand_in_for_every_set() -> None:
    exp = of_kind(reduced(PRESETS["imagenet/bownet-conv4"](), "tiny"), "scenes")
    assert (exp.data.kind, exp.data.path, exp.data.is_raw) == ("scenes", None, True)
    assert (exp.transfer.data.kind, exp.transfer.data.seed) == ("scenes", 1)
    assert exp.voc07_svm.path == exp.detection.path == "scenes"
    whole = of_kind(PRESETS["imagenet/bownet-conv4"](), "scenes")
    assert whole.data.is_raw  # there are no files to keep
    assert of_kind(exp, "scenes") == exp
    assert Experiment.model_validate(exp.model_dump()) == exp


FAMILIES = {  # a preset for each task, of which no two share a training; RotNet and BoWNet come with them
    "cifar100/supervised",
    "cifar100/deeper-clustering",
    "cifar100/sp-bownet",
    "cifar100/bownet-perturbed-target",
    "miniimagenet/supervised-cc",
    "miniimagenet/relloc-bownet",
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_of_tasks_runs_end_to_end(name: str, shared: Path, machine: Machine) -> None:
    exp = start_of(name, TINY)
    alone = replace(machine, workers=1, cpus_per_worker=1, in_task=True)
    rows = [row.result() for row in experiment(exp, Store(shared, machine=alone))]
    assert len(rows) == 1 + (exp.teacher.kind != "random") + exp.rounds
    for row in rows:
        assert 0 < row["metrics"]["linear/top1"] < 100
        assert set(exp.evaluators) <= row["protocol"].keys()


PLANNED = {  # families whose training is left to the slow test of every preset, and their last network
    "imagenet/bownet-conv4": ("BoWNet x2", {"linear", "transfer", "voc07_svm", "detection"}),
    "imagenet-small/bownet-conv4": ("BoWNet", {"linear"}),
    "miniimagenet/random-bownet": ("BoWNet x4", {"linear", "fewshot"}),
}


@pytest.mark.parametrize("name", PLANNED)
def test_families_that_take_long_are_planned(name: str, tmp_path: Path) -> None:
    plan = Plan(Store(tmp_path / "store"))
    rows = experiment(start_of(name, TINY), plan)
    last, evaluators = PLANNED[name]
    assert rows[-1].name == last
    assert evaluators <= rows[-1].artifacts.keys()
    assert not [note for note in plan.notes if "left out" in note]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def run_tiny(name: str, folder: Path) -> dict[str, Any]:
    where = ("--store", folder / "store", "--json", folder / "report.json", "--resources.trainer", "task")
    done = run_full(name, *TINY, *where, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Reduced scale (tiny)" in done.stdout
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    assert report["rows"]
    assert {row["scale"] for row in report["rows"]} == {"tiny"}
    exp = start_of(name, TINY)
    for row in report["rows"]:
        assert set(exp.evaluators) <= row["protocol"].keys()
    return report


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", sorted(PRESETS.keys() - {"demo", "smoke", "cifar10/small"}))
def test_every_preset_runs_end_to_end(name: str, tmp_path: Path) -> None:
    run_tiny(name, tmp_path)
