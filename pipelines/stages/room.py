"""Room for several actors at once: all of them or none, so that no two programs hold a half each and wait for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PATIENCE = 10.0  # seconds, after which half as many must do: others hold what is lacking


@dataclass(frozen=True)
class Room:
    """For so many actors; `strategy` places them."""

    count: int
    strategy: Any
    group: Any = None

    def release(self) -> None:
        from ray.util import remove_placement_group

        if self.group is not None:
            remove_placement_group(self.group)


def reserve(wanted: int, gpus: float = 0.0) -> Room:
    """Room for as many actors of one CPU, and so much of a GPU, as there is within seconds; a single one just waits."""
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundle: dict[str, float] = {"CPU": 1.0} | ({"GPU": gpus} if gpus else {})
    while wanted > 1:
        group = placement_group([bundle] * wanted, strategy="SPREAD")
        if group.wait(PATIENCE):
            return Room(wanted, PlacementGroupSchedulingStrategy(group), group)
        remove_placement_group(group)
        wanted //= 2
    return Room(1, "DEFAULT")
