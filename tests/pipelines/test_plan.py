"""Plans: which settings change which keys, and what is refused before anything starts."""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bownet.config import Experiment, Optimiser, Teacher
from pipelines.command_line import parse, start_of
from pipelines.full import experiment
from pipelines.plan import Plan
from pipelines.presets import PRESETS
from pipelines.stages.student import TrainStudent
from pipelines.store import Estimate, Stage, Store, Workspace


def keys(exp: Experiment, root: Path) -> dict[str, str]:
    plan = Plan(Store(root))
    experiment(exp, plan)
    return {step.stage.label: step.artifact.key for step in plan.steps}


def changed(root: Path, *settings: str) -> set[str]:
    """The stages whose keys differ from those of the plain demo."""
    before = keys(PRESETS["demo"](), root)
    after = keys(parse(None, ["demo", *settings]).experiment, root)
    assert before.keys() == after.keys()
    return {label for label in before if before[label] != after[label]}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_planned_without_touching_the_disk(name: str, tmp_path: Path) -> None:
    exp = start_of(name, ["--scale", "tiny", "--data.kind", "scenes"])
    assert len(keys(exp, tmp_path / "store")) >= 3
    assert not (tmp_path / "store").exists()


def test_keys_do_not_depend_on_where_or_how_it_runs(tmp_path: Path) -> None:
    exp = PRESETS["demo"]()
    elsewhere = parse(None, ["demo", "--store", "x", "--resources.workers", "7", "--quiet", "--debug"]).experiment
    assert keys(exp, tmp_path / "a") == keys(elsewhere, tmp_path / "b")
    assert changed(tmp_path, "--name", "another") == set()


def test_a_seed_changes_all_but_the_pictures(tmp_path: Path) -> None:
    assert set(keys(PRESETS["demo"](), tmp_path)) - changed(tmp_path, "--seed", "1") == {"images"}
    assert "images" in changed(tmp_path, "--data.seed", "1")


def test_a_setting_changes_its_own_stage_and_what_follows(tmp_path: Path) -> None:
    vocabulary = changed(tmp_path, "--vocabulary.size", "64")
    assert {label.split(":")[0] for label in vocabulary} == {"BoWNet", "BoWNet x2"}
    assert "BoWNet: vocabulary" in vocabulary
    student = changed(tmp_path, "--student.cutmix", "True")
    assert "BoWNet: training" in student
    assert not {"BoWNet: vocabulary", "BoWNet: words"} & student
    assert {"BoWNet x2: vocabulary", "BoWNet x2: words"} <= student
    assert changed(tmp_path, "--linear.epochs", "9") == {
        f"{m}: linear" for m in ("random", "RotNet", "BoWNet", "BoWNet x2")
    }
    assert changed(tmp_path, "--fewshot.episodes", "9") == {
        f"{m}: few-shot" for m in ("random", "RotNet", "BoWNet", "BoWNet x2")
    }


def test_the_random_base_teaches_without_training(tmp_path: Path) -> None:
    labels = keys(parse(None, ["demo", "--teacher.kind", "random"]).experiment, tmp_path)
    assert not any(label.startswith("RotNet") for label in labels)
    assert "BoWNet x2: training" in labels


@dataclass(frozen=True)
class Huge(Stage):
    name = "huge"
    version = 1

    def build(self, work: Workspace) -> dict[str, Any]:
        raise AssertionError("planned only")

    def estimate(self) -> Estimate:
        return Estimate("much", disk_bytes=10**18)


def test_a_plan_in_a_file_is_whole_and_its_store_has_its_brackets(tmp_path: Path) -> None:
    text = io.StringIO()
    root = tmp_path / ("[old]" + "a" * 90) / "store"
    plan = Plan(Store(root))
    experiment(PRESETS["demo"](), plan)
    plan.show(Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    assert lines[0] == f"{len(plan.steps)} stages, {len(plan.steps)} to do, store {root}"
    for step in plan.steps:
        keys = " ".join(one.key[:8] for one in step.stage.inputs().values())
        assert any(step.stage.label in line and step.artifact.key[:8] in line and keys in line for line in lines)


def test_a_disk_that_is_too_small_is_refused_with_both_numbers(tmp_path: Path) -> None:
    plan = Plan(Store(tmp_path / "store"))
    plan.check_room()
    plan.get(Huge())
    with pytest.raises(ValueError, match=r"about 2000000.0 TB are needed, .* are free; free some room or name another"):
        plan.check_room()


UNTRAINABLE = {
    "--student.optimiser.sync-batch-norm True": "student.optimiser.sync_batch_norm=True: torch has it for GPUs only",
    "--teacher.optimiser.sync-batch-norm True": "teacher.optimiser.sync_batch_norm=True: torch has it for GPUs only",
    "--student.optimiser.batch 4 --student.optimiser.accumulate 2": "student.optimiser.batch=4: 240 images give "
    "batches of 4, too few for 3 workers x student.optimiser.accumulate=2; use fewer of them, or larger batches",
    "--teacher.optimiser.batch 2": "teacher.optimiser.batch=2: 240 images give batches of 2, too few for 3 workers",
}


@pytest.mark.parametrize("line", UNTRAINABLE)
def test_what_no_worker_can_train_is_refused_before_any_other_trains(line: str, tmp_path: Path) -> None:
    plan = Plan(Store(tmp_path))
    experiment(parse(None, ["smoke", *line.split()]).experiment, plan)
    with pytest.raises(ValueError, match=f"^{re.escape(UNTRAINABLE[line])}"):
        plan.check_workers(3, gpu=False)
    if "sync" in line:
        plan.check_workers(3, gpu=True)
    else:
        plan.check_workers(1, gpu=False)


def test_the_rotnet_before_deeper_clustering_names_its_own_settings(tmp_path: Path) -> None:
    first = Optimiser(epochs=1, drops=(), iterations_per_epoch=None, batch=2)
    teacher = Teacher(kind="deeper_clustering", arch="wrn-10-1", clusters=12, rotnet_first=first)
    plan = Plan(Store(tmp_path))
    experiment(PRESETS["smoke"]().model_copy(update={"teacher": teacher}), plan)
    with pytest.raises(ValueError, match=r"^teacher.rotnet_first.batch=2: 240 images give batches of 2, too few for 3"):
        plan.check_workers(3, gpu=False)


def test_more_clusters_than_images_are_refused_in_the_plan(tmp_path: Path) -> None:
    exp = parse(None, ["smoke", "--teacher.kind", "deeper_clustering", "--teacher.clusters", "241"]).experiment
    with pytest.raises(ValueError, match=r"^teacher.clusters=241: there are 240 images, use 2..240$"):
        experiment(exp, Plan(Store(tmp_path)))


def test_students_of_different_seeds_and_rounds_have_different_seeds(tmp_path: Path) -> None:
    seeds: list[int] = []
    for seed in ("0", "1", "2"):
        plan = Plan(Store(tmp_path))
        experiment(parse(None, ["smoke", "--rounds", "3", "--seed", seed]).experiment, plan)
        seeds += [step.stage.seed for step in plan.steps if isinstance(step.stage, TrainStudent)]
    assert seeds == [1, 1001, 2001, 2, 1002, 2002, 3, 1003, 2003]
