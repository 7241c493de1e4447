"""Arguments to settings: presets, overrides, help, and one line for every mistake."""

import re
import sys
from types import ModuleType

import pytest

from bownet.config import Experiment
from pipelines import figures, report
from pipelines.command_line import Options, parse, parse_settings
from pipelines.presets import PRESETS, first_line


def options(*arguments: str) -> Options:
    return parse("about", arguments)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_and_parses(name: str) -> None:
    preset = PRESETS[name]()
    assert preset.name == name
    assert options(name).experiment == preset
    assert Experiment.model_validate_json(preset.model_dump_json()) == preset
    assert PRESETS[name].__doc__
    assert "Command:" in PRESETS[name].__doc__


def test_settings_are_overridden_by_their_dotted_names() -> None:
    given = options(
        *["demo", "--vocabulary.size", "256", "--student.cutmix", "true", "--data.image-size", "48", "--seed", "3"],
        *["--student.optimiser.schedule", "step", "--student.optimiser.drops", "4", "8"],
        *["--store", "s", "--json", "f", "--dry-run"],
    )
    exp = given.experiment
    assert (exp.vocabulary.size, exp.student.cutmix, exp.data.image_size, exp.seed) == (256, True, 48, 3)
    assert exp.student.optimiser.drops == (4, 8)
    assert (given.store, given.json_file, given.dry_run) == ("s", "f", True)
    assert exp.teacher == PRESETS["demo"]().teacher


MISTAKES = {
    "demo --vocabulary.sze 3": r"^--vocabulary.sze: unknown setting, did you mean --vocabulary.size\?$",
    "demo --sed=3": r"^--sed: unknown setting, did you mean --seed\?$",
    "demo --dry-rum": r"^--dry-rum: unknown setting, did you mean --dry-run\?$",
    "dmo": r"^preset='dmo': unknown, did you mean demo\?; --list shows them all$",
    "cifar100/bonwet": r"^preset='cifar100/bonwet': unknown, did you mean cifar100/bownet\?; --list shows them all$",
    "": r"^no preset named: it is the first argument, such as demo; --list shows them all$",
    "cifar100/bownet --data.kind folder": r"^data.path=None: kind=folder is read from files",
    "cifar10/small --scale full": r"^scale=full: cifar10/small is small by itself, use a preset of the paper$",
    "cifar100/bownet --scale huge": r"^scale=huge: Input should be 'full', 'small' or 'tiny'$",
    "demo --vocabulary.size 70000": r"^vocabulary.size=70000: use 2\.\.65536 \(Number of visual words K\)$",
    "demo --no-figures --vocabulary.size 70000": r"^vocabulary.size=70000: use 2\.\.65536",
    "miniimagenet/random-bownet --rounds 2": r"^per_round has 4 entries for rounds=2: give one for each$",
    "demo --vocabulary.whiten True": r"^vocabulary.whiten=True: whitens principal components, of which",
    "demo --vocabulary.size many": r"^vocabulary.size=many: use a whole number, 2\.\.65536",
    "demo --student.optimiser.lr -1": r"^student.optimiser.lr=-1: use more than 0.* and at most 100",
    "demo --rounds 17": r"^rounds=17: use 0\.\.16",
    "demo --resources.trainer task --resources.workers 2": r"^resources.trainer=task: has one worker, not workers=2",
    "demo --resources.workers 0": r"^resources.workers=0: use 1\.\.4096",
    "demo --data.kind folder": r"^data.path=None: kind=folder is read from files, name their folder with --data.path$",
    "demo --data.path x": r"^data.path=x: .* drawn, not read",
    "demo --data.kind imagenette": r"^data.kind=imagenette: Input should be 'scenes', 'folder',",
    "demo --teacher.arch wrn-11-2": r"^teacher.arch=wrn-11-2: known are wrn-<6n\+4>-<width>",
    "demo --student.perturbation.crop-area 0.9 0.1": r"^student.perturbation.crop_area=\(0.9, 0.1\): needs 0 <",
    "cifar100/bownet-x3 --student.optimiser.drops 9 5": r"^student.optimiser.drops=\(9, 5\): list epochs",
    "demo --student.cutmix maybe": r"^student.cutmix=maybe: use True or False",
    "demo 256": r"^'256': expected a setting such as",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line(line: str) -> None:
    with pytest.raises(ValueError, match=MISTAKES[line]) as caught:
        options(*line.split())
    assert "\n" not in str(caught.value)


def test_help_lists_presets_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        options("--help")
    assert exit.value.code == 0
    text = capsys.readouterr().out
    for name in PRESETS:
        assert name in text
        assert first_line(name)[:40] in text
    with pytest.raises(SystemExit) as exit:
        options("demo", "--vocabulary.size", "256", "--help")
    assert exit.value.code == 0
    assert "--student.perturbation.crop-area" in capsys.readouterr().out


@pytest.mark.parametrize("program", [figures, report])
def test_help_shows_each_command_once_and_in_a_line(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["program.py", "--help"])
    with pytest.raises(SystemExit) as exit:
        program.main()
    assert exit.value.code == 0
    said = capsys.readouterr().out
    commands = [line for line in (program.__doc__ or "").splitlines() if line.startswith("python ")]
    assert [said.splitlines().count(f"  {command}") for command in commands] == [1] * len(commands)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kye", "3"], "Unrecognized options: --kye, 3; for full helptext, run "),
        (
            ["--formats", "foo"],
            "invalid choice 'foo' for argument '--formats'. Expected one of ('markdown', 'html', 'latex');",
        ),
    ],
)
def test_mistakes_that_tyro_finds_are_told_once(arguments: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        parse_settings(report.ReportOptions, None, arguments)


def test_the_list_has_every_preset_and_the_papers_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        options("--list")
    assert exit.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in PRESETS)
    assert all(figure in text for figure in ("69.76", "93.9", "46.45", "55.8", "62.1"))
    assert "\x1b[" not in text


def test_scale_and_kind_come_before_all_other_settings() -> None:
    exp = options("cifar100/bownet", "--vocabulary.size", "64", "--scale=tiny", "--data.kind", "scenes").experiment
    assert (exp.scale, exp.vocabulary.size, exp.data.kind, exp.data.path) == ("tiny", 64, "scenes", None)
    assert exp.student.arch == "wrn-10-1"
    other = options("imagenet/bownet-conv4", "--data.kind", "folder", "--data.path", "photos").experiment
    assert (other.data.kind, other.data.path, other.data.image_size) == ("folder", "photos", 224)
    rounds = options("miniimagenet/random-bownet", "--scale", "tiny", "--data.kind", "scenes").experiment
    assert [one.pca for one in rounds.per_round] == [8, None, None, None]
