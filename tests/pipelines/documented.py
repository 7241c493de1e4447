"""Every command that README and documentation show, as words of a shell."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from conftest import ROOT

FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = ("python", "make", "ray", "mlflow", "pip", ".ci/run", ".", "export")
TREE = re.compile(r"^\S+/ {2,}|→")  # a line of a picture, not of a shell


class Command(NamedTuple):
    page: str
    words: tuple[str, ...]
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> Iterator[Command]:
    """Each once."""
    seen = set()
    for page in pages():
        for language, block in FENCED.findall(page.read_text()):
            if language:
                continue
            for line in block.replace("\\\n", " ").splitlines():
                if TREE.search(line):
                    continue
                for command in _of_line(page.name, line):
                    if command[1:] not in seen:
                        seen.add(command[1:])
                        yield command


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
