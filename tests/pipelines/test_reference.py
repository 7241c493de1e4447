"""The pages that are made from the code: what they say of programs and of the paper's tables is so."""

import contextlib
import io
import re
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
from conftest import ROOT

from pipelines.command_line import parse, parse_evaluation, parse_settings
from pipelines.figures import FigureOptions
from pipelines.presets import PRESETS
from pipelines.report import ReportOptions
from pipelines.sweeps.options import SweepOptions

OPTION = r"--[a-z0-9][a-z0-9.-]*"
NOT_THE_PAPERS = ("demo", "smoke", "cifar10/small")


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        import reference_from_code

        sys.modules.pop("reference_from_code")
        made: ModuleType = reference_from_code
        return made


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("full.py", lambda: parse(None, ["demo", "--help"])),
        ("evaluate.py", lambda: parse_evaluation(None, ["--help"])),
        ("sweep.py", lambda: parse_settings(SweepOptions, None, ["--help"])),
        ("report.py", lambda: parse_settings(ReportOptions, None, ["--help"])),
        ("figures.py", lambda: parse_settings(FigureOptions, None, ["--help"])),
    ],
)
def test_options_are_those_of_the_program(name: str, ask: Callable[[], object], reference: ModuleType) -> None:
    """All that are shown exist, and all that exist are shown, there or on the page of settings."""
    helped = io.StringIO()
    with contextlib.redirect_stdout(helped), pytest.raises(SystemExit):
        ask()
    lines = re.findall(r"^[│ ]*(--.*?)(?:  |$)", helped.getvalue(), re.MULTILINE)  # without what is said of them
    exist = set(re.findall(OPTION, " ".join(lines)))
    section = reference.command_lines().partition(f"## {name}\n")[2].partition("\n## ")[0]
    rows = "".join(line.partition(" | ")[0] for line in section.splitlines() if line.startswith("| `--"))
    shown = set(re.findall(OPTION, rows))
    assert len(shown) >= 5
    assert shown <= exist
    settings = {"--" + setting.replace("_", "-") for setting in re.findall(r"^\| `(.*?)`", reference.settings(), re.M)}
    if name == "evaluate.py":
        assert "--weights" in shown
        settings |= set(re.findall(OPTION, reference.command_lines().partition("## evaluate.py")[0]))
    same = re.findall(r"^## `(.*?)`\n\nThe same settings as `(.*?)`", reference.settings(), re.M)
    exist = {option for option in exist if not any(option.startswith(f"--{one.replace('_', '-')}.") for one, _ in same)}
    exist = {option for option in exist if not option.startswith(("--no-", "--resources.no-"))}
    assert exist <= shown | settings


def test_every_preset_of_the_paper_is_in_its_tables(reference: ModuleType) -> None:
    tables = reference.tables()
    assert set(re.findall(r"`([\w/.-]+)`", tables)) == set(PRESETS) - set(NOT_THE_PAPERS)
    assert "| RotNet -> BoWNet | BoWNet of `miniimagenet/bownet`, `miniimagenet/bownet-x2`" in tables
    assert [int(n) for n in re.findall(r"^### Tables? (\d+)", tables, re.M)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_what_argparse_has_is_shown(reference: ModuleType) -> None:
    said = reference.command_lines()
    assert "| `--tap` | onnx: the feature map beside the pooled feature" in said
    assert "`gc`: delete what no recorded run needs." in said
    assert "| `--keep-days` |" in said
