"""Base teachers of every kind in the plan, and one run with all that is not the default."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run_full
from PIL import Image

from bownet.config import Experiment, Optimiser, Round, Teacher
from bownet.tasks.registry import TASKS
from pipelines.command_line import parse
from pipelines.full import TEACHERS, experiment
from pipelines.plan import Plan
from pipelines.presets import PRESETS
from pipelines.store import Stage, Store

FEW = ["--teacher.clusters", "12"]  # for as few images as the smoke preset has


def stages(exp: Experiment, root: Path) -> dict[str, Stage]:
    plan = Plan(Store(root))
    experiment(exp, plan)
    return {step.stage.label: step.stage for step in plan.steps}


def smoke(**changes: Any) -> Experiment:
    exp = PRESETS["smoke"]()
    return Experiment.model_validate({**exp.model_dump(), **changes})


@pytest.mark.parametrize("kind", TASKS)
def test_every_task_is_planned_under_its_name(kind: str, tmp_path: Path) -> None:
    planned = stages(parse(None, ["smoke", "--teacher.kind", kind, *FEW]).experiment, tmp_path)
    assert f"{TEACHERS[kind]}: training" in planned
    assert planned["BoWNet: vocabulary"].inputs()["teacher"].ref.startswith("teacher/")


def test_the_student_changes_no_teacher_but_the_one_that_is_trained_like_it(tmp_path: Path) -> None:
    for kind, same in (("rotation", True), ("deeper_clustering", False)):
        label = f"{TEACHERS[kind]}: training"
        plain, other = (
            Store(tmp_path).plan(
                stages(parse(None, ["smoke", "--teacher.kind", kind, *FEW, *more]).experiment, tmp_path)[label]
            )
            for more in ([], ["--student.perturbation.hue", "0.3", "--student.optimiser.epochs", "3"])
        )
        assert (plain.key == other.key) is same


def test_deeper_clustering_goes_on_from_a_rotnet_when_asked(tmp_path: Path) -> None:
    teacher = Teacher(kind="deeper_clustering", clusters=12, rotnet_first=Optimiser(epochs=3, drops=()))
    planned = stages(smoke(teacher=teacher.model_dump()), tmp_path)
    start = planned["Deeper Clustering: training"].inputs()["start"]
    assert start.key == Store(tmp_path).plan(planned["RotNet: training"]).key


def test_rounds_with_taps_of_their_own(tmp_path: Path) -> None:
    rounds = (Round(tap="block1", pca=8), Round(tap="block2"), Round(tap="block3"))
    exp = smoke(
        rounds=3,
        per_round=[r.model_dump() for r in rounds],
        data={**PRESETS["smoke"]().data.model_dump(), "image_size": 32},
    )
    planned = stages(exp, tmp_path)
    found = [planned[f"{name}: vocabulary"].config()["vocabulary"] for name in ("BoWNet", "BoWNet x2", "BoWNet x3")]
    assert [(v["tap"], v["pca"]) for v in found] == [("block1", 8), ("block2", None), ("block3", None)]
    with pytest.raises(ValueError, match=r"per_round has 3 entries for rounds=2"):
        smoke(rounds=2, per_round=[r.model_dump() for r in rounds])


def test_words_of_perturbed_images_need_the_teacher(tmp_path: Path) -> None:
    clean = stages(smoke(), tmp_path)["BoWNet: training"]
    perturbed = stages(parse(None, ["smoke", "--student.target", "perturbed"]).experiment, tmp_path)["BoWNet: training"]
    assert clean.inputs().keys() == {"images", "words"}
    assert perturbed.inputs().keys() == {"images", "words", "teacher", "vocabulary"}


def test_a_task_that_needs_labels_is_refused_without_them(tmp_path: Path) -> None:
    for i in range(30):
        Image.fromarray(np.full((32, 32, 3), i, np.uint8)).save(tmp_path / f"{i}.png")
    folder = ["--data.kind", "folder", "--data.path", tmp_path, "--store", tmp_path / "s", "--dry-run"]
    done = run_full("smoke", "--teacher.kind", "supervised", *folder)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: teacher.kind=supervised: learns from labels")


@pytest.mark.slow
def test_all_that_is_not_the_default_in_one_run(tmp_path: Path) -> None:
    teacher = ["--teacher.kind", "deeper_clustering", "--teacher.clusters", "12", "--teacher.optimiser.epochs", "4"]
    student = ["--student.head", "linear", "--student.pyramid", "True", "--student.target", "perturbed"]
    loop = ["--student.optimiser.ema", "0.9", "--student.optimiser.clip", "1", "--student.optimiser.accumulate", "2"]
    report = tmp_path / "r.json"
    done = run_full("smoke", "--store", tmp_path / "s", "--json", report, *teacher, *student, *loop)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(report.read_text())["rows"]
    assert [row["name"] for row in rows] == ["random", "Deeper Clustering", "BoWNet"]
    assert all("linear/top1" in row["metrics"] for row in rows)
