"""Every preset, as the paper has it, can be planned where its data sets are: files in each of their formats."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from all_sets import write_all_sets
from rich.console import Console

from pipelines.command_line import parse
from pipelines.full import experiment
from pipelines.plan import Plan
from pipelines.presets import PRESETS
from pipelines.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("all_sets")
    with pytest.MonkeyPatch.context() as patch:
        write_all_sets(root, patch)
        yield root


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_passes_its_dry_run(name: str, folder: Path) -> None:
    exp = parse(None, [name, "--dry-run"]).experiment
    plan = Plan(Store("store"))
    experiment(exp, plan)
    console = Console(record=True, width=200, file=io.StringIO())
    plan.show(console)
    assert f"{len(plan.steps)} stages, {len(plan.steps)} to do" in console.export_text()
    assert not any("left out" in note for note in plan.notes), plan.notes
    assert not (folder / "store").exists()
