"""A file system of a few MB that can be filled, or made read-only, without harm to anyone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def leave_out(reason: str) -> None:
    """A skip, for only root may do such things. Where CI is set a root that cannot fails, as that is no pass."""
    import pytest  # here, as the chaos run goes without

    is_able = sys.platform == "linux" and os.getuid() == 0
    (pytest.fail if os.environ.get("CI") and is_able else pytest.skip)(reason)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own, which only root may mount; others get a folder, and no disk is filled."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        print("left out, as a file system cannot be mounted here: disk full")
    try:
        yield disk
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "-l", str(disk)], check=True)
