"""What a network cost: its artifact goes in; images seen in training and hours of building come out, from manifests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pipelines.store import Artifact, StoreError


@dataclass(frozen=True)
class Cost:
    images: int
    seconds: float


def cost_of(root: str, ref: str) -> Cost | None:
    """Of an artifact, "stage/key", and all that it is made from; None if something of it is gone."""
    images, seconds = 0, 0.0
    seen: set[str] = set()
    waiting = [ref]
    try:
        while waiting:
            if (one := waiting.pop()) in seen:
                continue
            seen.add(one)
            manifest = _manifest(root, one)
            seconds += float(manifest["seconds"])
            images += images_seen(root, manifest)
            waiting += manifest["inputs"].values()
    except StoreError:
        return None
    return Cost(images, seconds)


def images_seen(root: str, manifest: dict[str, Any]) -> int:
    """Training images that a training showed its network, each view of one counted once; 0 for other stages."""
    stage = manifest["stage"]
    if stage not in ("teacher", "student"):
        return 0
    optimiser = manifest["config"][stage]["optimiser"]
    steps = optimiser["iterations_per_epoch"]
    train = _manifest(root, manifest["inputs"]["images"])["info"]["counts"]["train"]
    return int(manifest["info"]["epochs"] * (steps * optimiser["batch"] if steps else train))


@lru_cache(maxsize=4096)
def _manifest(root: str, ref: str) -> dict[str, Any]:
    stage, _, key = ref.partition("/")
    return Artifact(stage, key, root).manifest()
