"""Figures as files."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

METADATA = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save(figure: Figure, path: Path, format: str) -> None:
    """The same figure gives the same bytes: no time, no version, and no random names within an SVG."""
    with rc_context({"svg.hashsalt": "bownet"}):
        figure.savefig(path, format=format, metadata=METADATA[format])


def save_png(figure: Figure, path: str | Path) -> None:
    save(figure, Path(path), "png")
