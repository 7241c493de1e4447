"""Every message that docs/troubleshooting.md quotes is one that the code, or Ray, really says."""

import ast
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from conftest import ROOT

from pipelines.command_line import parse
from pipelines.store.errors import explained

ANY = "\0"  # what a message fills in
FILLED_IN = re.compile(r"\.\.\.|'\.\.\.'|\d+(?:%| GB| words)?")


def messages(folder: Path) -> Iterator[str]:
    """Every text in the code below a folder, those that are glued together as one."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Constant(str(text)):
                    yield text
                case ast.JoinedStr(parts):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in parts)


def raised() -> Iterator[str]:
    """Texts that are put together of several, or are the system's."""
    with pytest.raises(ValueError, match="No space left") as full, explained("write", "a/b"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    yield str(full.value)
    yield os.strerror(errno.EADDRINUSE)  # MLflow's server
    with pytest.raises(ValueError, match="unknown") as unknown:
        parse(None, ["dmo"])
    yield str(unknown.value)


def says(message: str, parts: list[str]) -> bool:
    """Whether it has all these parts, in this order."""
    return re.search(".*".join(map(re.escape, parts)), message, re.DOTALL) is not None


def quoted() -> list[str]:
    """What stands between backticks in the first column, but for the command that says it."""
    text = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
    first = [row.split(" | ")[0] for row in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE)]
    return [one for cell in first for one in re.findall("`(.*?)`", cell.partition(" from ")[0])]


@pytest.fixture(scope="module")
def known() -> list[str]:
    of_ray = Path(ray.__file__).parent
    ours = [ROOT / name for name in ("bownet", "evaluation", "pipelines")]
    folders = [*ours, of_ray / "dashboard", of_ray / "_private"]
    return [*raised(), *(text for folder in folders for text in messages(folder))]


@pytest.mark.parametrize("quote", quoted())
def test_a_quoted_message_is_said(quote: str, known: list[str]) -> None:
    parts = [part.strip() for part in FILLED_IN.split(quote)]
    parts = [part for part in parts if part]
    assert parts
    assert any(says(message, parts) for message in known)


def test_there_are_messages_and_a_wrong_one_is_found() -> None:
    assert len(quoted()) >= 18
    message = f"resources.workers={ANY}: the cluster has {ANY} GPUs"
    assert says(message, ["resources.workers=", "the cluster has", "GPUs"])
    assert not says(message, ["resources.workers=", "the cluster has", "CPUs"])
