"""Every command and every piece of Python that README, documentation and programs show."""

import ast
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from conftest import ROOT

FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`((?:python|make|ray|mlflow|pip) [^`]+)`(?!`)")
PROGRAMS = ("python", "make", "ray", "mlflow", "pip", ".ci/run", ".", "export")
TREE = re.compile(r"^\S+/ {2,}|→")  # a line of a picture, not of a shell
SAID = re.compile(r" {3,}.*")  # behind a command at the top of a program: what it does


class Command(NamedTuple):
    page: str
    words: tuple[str, ...]
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    found = FENCED.findall(page.read_text("utf-8"))
    return [textwrap.dedent(block) for _, language, block in found if language == "python"]


def commands() -> Iterator[Command]:
    """Each once."""
    seen = set()
    for page, line in [*_of_pages(), *_of_programs()]:
        for command in _of_line(page, line):
            if command[1:] not in seen:
                seen.add(command[1:])
                yield command


def _of_pages() -> Iterator[tuple[str, str]]:
    for page in pages():
        text = page.read_text("utf-8")
        for _, language, block in FENCED.findall(text):
            if language in ("", "sh"):
                yield from ((page.name, line) for line in _lines(block) if not TREE.search(line))
        for inline in INLINE.findall(FENCED.sub("", text)):
            yield page.name, " ".join(inline.split())


def _of_programs() -> Iterator[tuple[str, str]]:
    """What stands at the top of those that people start; the reference shows it, too."""
    for file in sorted([*(ROOT / "pipelines").glob("*.py"), *(ROOT / "examples").glob("*.py")]):
        top = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
        yield from ((file.name, SAID.sub("", line)) for line in _lines(top))


def _lines(block: str) -> list[str]:
    return re.sub(r"\\\n *", " ", block).splitlines()


def _of_line(page: str, line: str) -> Iterator[Command]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # what a program prints
        return
    variables = [word for word in words if re.match(r"[A-Z_]+=", word)]
    words = [word for word in words if word not in variables]
    if not words or words[0] not in PROGRAMS:
        return
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    for part in parts:
        yield Command(page, tuple(part), tuple(variables))
