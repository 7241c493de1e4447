"""Figures as files."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure


def save(figure: Figure, path: Path, format: str) -> None:
    """The same figure gives the same bytes: no time, no version."""
    metadata = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
    figure.savefig(path, format=format, metadata=metadata)


def save_png(figure: Figure, path: str | Path) -> None:
    save(figure, Path(path), "png")
