"""One look for all figures: colours that colour-blind people can tell apart, sizes that print well."""

from __future__ import annotations

# Okabe and Ito's
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, BLACK, GREY = "#56B4E9", "#F0E442", "#000000", "#7F7F7F"
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P")  # so that lines are told apart in grey as well
DPI = 150
