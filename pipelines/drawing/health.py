"""A vocabulary's health in one picture: how its words are used, how many an image has, how k-means converged."""

from __future__ import annotations

from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bownet.words.health import Health
from pipelines.drawing.style import BLUE, DPI, GREY, ORANGE, plain


def draw_health(health: Health, title: str) -> Figure:
    figure = Figure(figsize=(11, 3.6), dpi=DPI, layout="constrained")
    figure.suptitle(f"{plain(title)}: {health.size} words, {health.images} images")
    usage, numbers, inertia = figure.subplots(1, 3, width_ratios=(1, 1.15, 1))
    _usage(usage, health)
    _inertia(inertia, health)
    _numbers(numbers, health)
    return figure


def _usage(axes: Axes, health: Health) -> None:
    rank, share = zip(*health.curve, strict=True)
    axes.loglog(rank, [max(s, 0.1 / health.positions) for s in share], color=BLUE, linewidth=2, label="words")
    axes.axhline(1 / health.size, color=GREY, linestyle="--", linewidth=1, label="all words alike")
    axes.set(xlabel="rank of the word", ylabel="share of all positions", title="How often words occur")
    axes.legend(frameon=False, fontsize=8)


def _inertia(axes: Axes, health: Health) -> None:
    axes.plot(range(1, len(health.inertia) + 1), health.inertia, color=ORANGE, linewidth=2, marker=".")
    axes.set(xlabel="iteration", ylabel="mean squared distance", title="k-means")


def _numbers(axes: Axes, health: Health) -> None:
    axes.axis("off")
    lines = [
        ("perplexity", f"{health.perplexity:.1f} of {health.size}"),
        ("used / dead words", f"{health.used} / {health.dead}"),
        ("held by the top 1%", f"{health.top_percent_share:.1%} of positions"),
        ("words per image", f"{health.words_per_image['mean']:.1f} of {health.words_per_image['positions']:.0f}"),
    ]
    if health.label_information is not None and health.label_entropy is not None:
        lines.append(
            ("a word tells of the label", f"{health.label_information:.3f} of {health.label_entropy:.2f} nats")
        )
    if health.drift_nmi is not None:
        lines.append(("as in the last round", f"NMI {health.drift_nmi:.2f}"))
    for i, (name, value) in enumerate(lines):
        axes.text(0, 0.95 - 0.13 * i, name, fontsize=9, color=GREY, va="top")
        axes.text(1, 0.95 - 0.13 * i, value, fontsize=9, va="top", ha="right")
    text = "\n".join(line for warning in health.warnings for line in wrap(warning, 60)) or "no warnings"
    axes.text(0, 0.0, text, fontsize=8, color=ORANGE if health.warnings else GREY, va="bottom")
