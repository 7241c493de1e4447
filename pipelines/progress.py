"""What people see while it runs: an in-place line on a terminal, quiet lines in a log or a job.

Workers post records on a board, a small Ray actor; a thread of the driver collects them for the display and for
tracking. Losing a record loses nothing: histories are part of the artifacts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any
from weakref import WeakKeyDictionary

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from pipelines.store import Artifact, Observer, Stage

Record = dict[str, Any]


def new_console(file: IO[str] | None = None) -> Console:
    """As programs print. With NO_COLOR rich would leave out colours only: here bold, dim and moving lines go, too."""
    return Console(file=file, highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto")


def print_whole(table: Table, console: Console) -> None:
    """On a terminal as wide as it is; into a file, a pipe or a job's log without folding anything."""
    before = console.width
    if not console.is_terminal:
        console.width = max(before, Measurement.get(console, console.options.update(max_width=10_000), table).maximum)
    console.print(table)
    console.width = before


class Board:
    """Holds records until the driver fetches them. Runs as a Ray actor."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._posted = 0

    def post(self, record: Record) -> None:
        self._records.append(record)
        self._posted += 1

    def beat(self) -> None:
        """A sign of life of work that has nothing to tell."""
        self._posted += 1

    def posted(self) -> int:
        """How many records and beats there have been."""
        return self._posted

    def take(self) -> list[Record]:
        records, self._records = self._records, []
        return records


def start_board() -> Any:
    """On the node of the program that asks, which ends with it anyway; started again if its process dies."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here: Any = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(Board).remote()


_last_posted: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # what each board has said


def posted(board: Any) -> int:
    """How many records workers have posted so far; 0 without a board, and as before when it does not answer."""
    import ray

    if board is None:
        return 0
    with suppress(ray.exceptions.RayError):  # that a board is silent must not be taken for a sign of life
        _last_posted[board] = int(ray.get(board.posted.remote(), timeout=10))
    return _last_posted.get(board, 0)


class Collector:
    """A thread that hands the board's records to listeners; use it as a context manager."""

    def __init__(self, board: Any, listeners: list[Callable[[Record], None]]) -> None:
        self._board = board
        self._listeners = listeners
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        import ray

        while not self._stop.wait(0.5):
            self._collect(ray)
        self._collect(ray)

    def _collect(self, ray: Any) -> None:
        try:
            records = ray.get(self._board.take.remote(), timeout=10)
        except Exception:  # the cluster is going down, and the driver will say why
            return
        for record in records:
            for listener in self._listeners:
                listener(record)


class Display(Observer):
    """Numbers the stages of a plan and shows what each one is doing."""

    def __init__(
        self,
        console: Console,
        total: int,
        quiet: bool = False,
        seconds_between_lines: float = 15,
        told: Iterable[str] = (),
    ) -> None:
        self._console = console
        self._total = total
        self._quiet = quiet
        self._told = set(told)
        self._number = 0
        self._between = seconds_between_lines
        self._label = ""
        self._first: tuple[float, float] | None = None
        self._shards: set[int] = set()  # a task that died with its worker tells of its shards again
        self._last_line = 0.0
        moves = console.is_terminal and console.color_system is not None  # else quiet lines, as in a log
        self._status = console.status("", spinner="dots") if moves and not quiet else None

    def on_start(self, stage: Stage, artifact: Artifact) -> None:
        self._label, self._first, self._last_line, self._shards = stage.label, None, time.monotonic(), set()
        self._show(f"{self._place()} {escape(stage.label)}")

    def on_done(self, stage: Stage, artifact: Artifact, cached: bool, seconds: float) -> None:
        self._number += 1
        if self._status:
            self._status.stop()
        if not self._quiet:
            took = "cached" if cached else f"{seconds:.1f} s"
            line = f"{self._place(0)} {escape(f'{stage.label:<28}')} {took:>8}  [dim]{artifact.ref}[/dim]"
            self._console.print(line, highlight=False, soft_wrap=True)
            if remark := stage.remark(artifact):
                self._console.print(f"[yellow]{escape(remark)}[/yellow]", highlight=False, soft_wrap=True)

    def on_waiting(self, stage: Stage, artifact: Artifact, holder: str) -> None:
        line = f"{self._place()} {escape(stage.label)}: waiting, {escape(holder)} is making it"
        self._console.print(line, highlight=False, soft_wrap=True)

    def on_corrupt(self, stage: Stage, artifact: Artifact, reason: str) -> None:
        self._console.print(f"[yellow]{escape(reason)}; it is made again[/yellow]", highlight=False, soft_wrap=True)

    def on_note(self, text: str) -> None:
        """The plan's notes were told before the first stage; what the real images add to them is told here."""
        if text not in self._told:
            self._told.add(text)
            self._console.print(f"[yellow]{escape(text)}[/yellow]", highlight=False, soft_wrap=True)

    def listen(self, record: Record) -> None:
        """Show a record that a worker has posted."""
        if record["label"] != self._label or self._quiet:
            return
        if record["kind"] == "shard":
            self._shards.add(record["number"])
            record = {**record, "epoch": len(self._shards)}
        finished = record["epoch"] + record.get("done", 0.0)
        self._first = self._first or (time.monotonic(), finished)  # the time before it went into starting up
        seconds, share = time.monotonic() - self._first[0], finished - self._first[1]
        left = seconds / share * (record["epochs"] - finished) if share > 0 else None
        text = f"{self._place()} {escape(self._label)}: {escape(describe(record, left))}"
        if self._status:
            self._show(text)
        elif record["kind"] != "step" and time.monotonic() - self._last_line > self._between:
            self._last_line = time.monotonic()
            self._show(text)

    def close(self) -> None:
        if self._status:
            self._status.stop()

    def _show(self, text: str) -> None:
        if self._status:
            self._status.update(text)
            self._status.start()
        elif not self._quiet:
            self._console.print(text, highlight=False, soft_wrap=True)

    def _place(self, ahead: int = 1) -> str:
        width = len(str(self._total))
        return f"\\[{self._number + ahead:>{width}}/{self._total}]"


def describe(record: Record, seconds_left: float | None) -> str:
    """One line of a training or clustering record."""
    if record["kind"] == "iteration":
        return f"iteration {record['epoch']}, inertia {record['inertia']:.3f}"
    if record["kind"] == "shard":
        left = "" if seconds_left is None else f", about {seconds_left:.0f} s left"
        return f"shard {record['epoch']}/{record['epochs']}{left}"
    if record["kind"] == "unit":
        left = "" if seconds_left is None else f", about {seconds_left:.0f} s left"
        return f"{record['what']} {record['epoch']}/{record['epochs']}{left}"
    number = record["epoch"] + (record["kind"] in ("step", "part"))  # the one that has begun
    parts = [f"{record.get('unit', 'epoch')} {number}/{record['epochs']}"]
    parts += [f"{name} {record[name]:.3f}" for name in ("loss", "floor", "accuracy") if name in record]
    if "knn" in record:
        parts.append(f"knn {record['knn']:.1f}%")
    if "images_per_second" in record:
        parts.append(f"{record['images_per_second']:.0f} images/s")
    if seconds_left is not None:
        parts.append(f"about {seconds_left:.0f} s left")
    return ", ".join(parts)
