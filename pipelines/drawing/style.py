"""One look for all figures: colours that colour-blind people can tell apart, sizes that print well, a last line."""

from __future__ import annotations

from matplotlib.figure import Figure

# Okabe and Ito's
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, BLACK, GREY = "#56B4E9", "#F0E442", "#000000", "#7F7F7F"
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P")  # so that lines are told apart in grey as well
DPI = 150


def plain(text: str) -> str:
    """A name as it stands: Matplotlib takes what is between two dollars for a formula, and fails on `US$ 10_% $`."""
    return text.replace("$", r"\$")


def sign(figure: Figure, text: str) -> None:
    """A small line at the bottom, such as the run and its scale; it takes the place of one that is there."""
    figure.supxlabel(plain(text), x=0.01, ha="left", fontsize=7, color="#5D6570")
