"""The stages of a run as a drawing: what is made from what, built or found, in how many seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pipelines.store import Artifact, StoreError

WIDE, HIGH, ACROSS, DOWN = 192, 34, 230, 46


@dataclass(frozen=True)
class Node:
    key: str
    label: str
    cached: bool
    seconds: float  # what it took to build, in this run or in the one that did; nan if that is gone
    inputs: tuple[str, ...]  # keys

    @property
    def how(self) -> str:
        if math.isnan(self.seconds):
            return "cached"
        took = f"{self.seconds:.1f} s" if self.seconds < 10 else f"{self.seconds:.0f} s"
        return f"cached, took {took}" if self.cached else took


def nodes_of(stages: Sequence[Mapping[str, Any]], root: str) -> list[Node]:
    """Of a run's record: each artifact once, with the keys that it is made from."""
    found: dict[str, Node] = {}
    for stage in stages:
        key = str(stage["key"])
        if key in found and not found[key].cached:
            continue
        cached, seconds = bool(stage["cached"]), float(stage["seconds"])
        try:
            manifest = Artifact(str(stage["name"]), key, root).manifest()
        except StoreError:  # deleted since
            manifest = {"inputs": {}, "seconds": math.nan}
        inputs = tuple(str(ref).rpartition("/")[2] for ref in manifest["inputs"].values())
        seconds = float(manifest["seconds"]) if cached else seconds
        found[key] = Node(key, str(stage["label"]), cached, seconds, inputs)
    return [*found.values()]


def depths(nodes: Sequence[Node]) -> dict[str, int]:
    """How many steps each is from the images. Nodes come in the order in which they were asked for: inputs first."""
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node.key] = 1 + max((depth[key] for key in node.inputs if key in depth), default=-1)
    return depth


def needed_arrows(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Of each node the inputs that are not inputs of its other inputs, at any distance: those are drawn already."""
    above: dict[str, set[str]] = {}
    kept: dict[str, list[str]] = {}
    for node in nodes:
        further = set().union(*(above.get(key, set()) for key in node.inputs))
        kept[node.key] = [key for key in node.inputs if key not in further]
        above[node.key] = further | set(node.inputs)
    return kept


def draw_graph(nodes: Sequence[Node]) -> str:
    """An SVG: one column for each step from the images."""
    depth = depths(nodes)
    row: dict[str, int] = {}
    taken: dict[int, int] = {}
    for node in nodes:
        at = depth[node.key]
        row[node.key] = taken.get(at, 0)
        taken[at] = row[node.key] + 1
    place = {node.key: (depth[node.key] * ACROSS + 4, row[node.key] * DOWN + 4) for node in nodes}
    arrows, boxes, arrows_to = [], [], needed_arrows(nodes)
    for node in nodes:
        x, y = place[node.key]
        for key in arrows_to[node.key]:
            if key in place:
                x0, y0 = place[key][0] + WIDE, place[key][1] + HIGH / 2
                bend = (x - x0) / 2
                curve = f"M{x0},{y0} C{x0 + bend},{y0} {x - bend},{y + HIGH / 2} {x},{y + HIGH / 2}"
                arrows.append(f'<path class="arrow" d="{curve}"/>')
        title = f"<title>{escape(node.label)}: {escape(node.key)}, {node.how}</title>"
        kind = "box" if node.cached else "box built"
        boxes.append(
            f'<g>{title}<rect class="{kind}" x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="4"/>'
            f'<text x="{x + 7}" y="{y + 14}">{escape(node.label[:27])}</text>'
            f'<text class="soft" x="{x + 7}" y="{y + 28}">{node.how} · {escape(node.key[:8])}</text></g>'
        )
    width = (max(depth.values(), default=0) + 1) * ACROSS
    height = max(taken.values(), default=1) * DOWN + 8
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" aria-label="stages and what they are made from">{"".join(arrows + boxes)}</svg>'
