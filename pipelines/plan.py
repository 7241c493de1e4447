"""The plan: the same experiment, walked without building anything, to show and to check what a run would do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bownet.masking import without_password
from pipelines.progress import print_whole
from pipelines.store import Artifact, Estimate, Folder, Stage, Store
from pipelines.store.storage import human_size


@dataclass(frozen=True)
class Step:
    stage: Stage
    artifact: Artifact
    cached: bool
    estimate: Estimate


class Plan:
    """Has the `get` of a store, but only notes what it is asked for. Stages that can check themselves do so here."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.steps: list[Step] = []
        self.notes: list[str] = []

    @property
    def root(self) -> str:
        return self._store.root

    def get(self, stage: Stage) -> Artifact:
        stage.check()
        for text in stage.notes():
            self.note(text)
        artifact = self._store.plan(stage)
        self.steps.append(Step(stage, artifact, self._store.is_cached(artifact), stage.estimate()))
        return artifact

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def to_do(self) -> list[Step]:
        return [step for step in self.steps if not step.cached]

    def check_workers(self, workers: int, gpu: bool) -> None:
        """Refuse now what so many training workers, on GPUs or on CPUs, cannot do."""
        for step in self.to_do:
            step.stage.check_workers(workers, gpu)

    def check_room(self) -> None:
        """Refuse now what the disk cannot hold."""
        need, free = self._disk()
        if free is not None and need > free:
            raise ValueError(
                f"store={self._shown}: about {human_size(need)} are needed, {human_size(free)} are free; "
                "free some room or name another --store"
            )

    def needs(self) -> list[str]:
        """Disk and memory against what is there, in words."""
        need, free = self._disk()
        memory = max((step.estimate.memory_bytes for step in self.to_do), default=0)
        have = psutil.virtual_memory().available
        said = [
            f"disk: about {human_size(need)} needed, "
            + (f"{human_size(free)} free" if free is not None else f"{self._shown} does not say what is free"),
            f"memory: about {human_size(memory)} at most, {human_size(have)} available on this machine",
        ]
        if memory > have:
            said.append("memory: more than this machine has; other machines of the cluster must have it")
        return said

    @property
    def _shown(self) -> str:
        return without_password(self._store.root)

    def _disk(self) -> tuple[int, int | None]:
        """Bytes that are needed, and those that are free if the store can say."""
        need = sum(step.estimate.disk_bytes for step in self.to_do) * 2  # outputs, and as much again on the way
        root = Folder(self._store.root)
        return need, shutil.disk_usage(_existing(Path(root.path()))).free if root.is_local else None

    def show(self, console: Console) -> None:
        title = f"{len(self.steps)} stages, {len(self.to_do)} to do, store {self._shown}"
        console.print(escape(title), style="italic", highlight=False, soft_wrap=True)
        table = Table()
        for column in ("stage", "state", "key", "from", "counts", "memory", "disk"):
            table.add_column(column, justify="right" if column in ("memory", "disk") else "left", overflow="fold")
        for step in self.steps:
            table.add_row(
                escape(step.stage.label),
                "cached" if step.cached else "to do",
                step.artifact.key[:8],
                " ".join(a.key[:8] for a in step.stage.inputs().values()) or "-",
                escape(step.estimate.counts),
                *(human_size(n) if n else "-" for n in (step.estimate.memory_bytes, step.estimate.disk_bytes)),
            )
        print_whole(table, console)
        for text in [*self.notes, *self.needs()]:
            console.print(escape(text), highlight=False, soft_wrap=True)


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
