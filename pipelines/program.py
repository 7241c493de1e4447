"""Runs an experiment from start to end: plan, preflight, Ray, tracking, results. Shared by the programs here."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import psutil
from rich.console import Console
from rich.markup import escape

from bownet.masking import masked, without_password
from pipelines.cluster import Cluster
from pipelines.command_line import EvaluationOptions, Options, Running
from pipelines.ending import answered, in_passing
from pipelines.evaluators import Getter, Row
from pipelines.gallery import with_figures
from pipelines.machine import connect
from pipelines.plan import Plan
from pipelines.progress import Collector, Display, new_console, start_board
from pipelines.reach import Reach
from pipelines.records import Record, write_record
from pipelines.results import show_results
from pipelines.stages.watch import is_at_work
from pipelines.store import Artifact, Observer, Stage, Store
from pipelines.store.storage import is_local

AnyOptions = TypeVar("AnyOptions", Options, EvaluationOptions)
PACKAGES = "runtime_resources/working_dir_files"  # where the files of a submitted job are, each time in another folder


def run_program(parse: Callable[[], AnyOptions], experiment: Callable[[Any, Any], list[Row]]) -> int:
    """The whole life of a program; returns its exit code.

    `experiment` takes the settings and a store; it is called with a plan first, which raises what would fail later.
    """
    return guarded(lambda console: run(parse(), experiment, console))


def guarded(program: Callable[[Console], int | None]) -> int:
    """Runs a program and answers what it raises in one line; returns its exit code.

    Work that is left behind in a thread may be within Ray, whose end would take its memory away: a crash now and then.
    The process then ends without Python's own last steps, after it has ended the local Ray that it may have started.
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    code = answered(lambda: program(new_console()), sys.argv[1:])
    if is_at_work():
        sys.stdout.flush()
        sys.stderr.flush()
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it may have ended
                process.kill()
        os._exit(code)
    return code


def run(options: AnyOptions, experiment: Callable[[Any, Any], list[Row]], console: Console) -> None:
    started = time.perf_counter()
    store = Store(options.store)
    plan = Plan(store)

    def left_out(stage: Stage, error: Exception) -> None:
        store.note(in_passing(error, stage.label, store.root))

    def walk(through: Getter) -> list[Row]:
        rows = experiment(options.experiment, through)
        return with_figures(rows, through, None if through is plan else left_out) if options.figures else rows

    walk(plan)  # also raises what would fail hours later
    if options.dry_run:
        plan.show(console)
        plan.check_room()
        return
    preflight(options, store, plan)

    from pipelines.tracking import Tracking, how_to_look, tracking_uri

    uri = tracking_uri(store.root)
    settings = masked(options.experiment.model_dump(mode="json"))
    keys = {step.stage.label: step.artifact.ref for step in plan.steps}
    board, todo = None, ""
    if plan.to_do:
        connect()
        board = start_board()

        def tell(text: str) -> None:
            console.print(escape(text), soft_wrap=True)

        store.machine = Cluster(options.resources, board, tell, Reach(store.root))
        machine = store.machine()
        plan.check_workers(machine.workers, machine.gpu)
        todo = f"{len(plan.to_do)} of {len(plan.steps)} stages to do on {machine.describe()}"
    if not options.quiet:
        said = todo or f"every one of {len(plan.steps)} stages is cached"
        console.print(escape(f"{options.experiment.name}: {said}"), soft_wrap=True)
        for text in plan.notes:
            console.print(escape(text), highlight=False, soft_wrap=True)
    tracking = Tracking(uri, options.experiment.name, settings, keys)
    display = Display(console, len(plan.steps), options.quiet, told=plan.notes)
    store.observer = Both(display, tracking)
    if board is not None:
        store.machine.tell = store.note
    run_id = tracking.run_id or f"local-{time.time_ns()}"
    store.record_run(run_id, keys.values(), {"experiment": options.experiment.name})
    try:
        if board is None:
            rows = walk(store)
        else:
            with Collector(board, [display.listen, tracking.listen]):
                rows = walk(store)
    except BaseException:
        display.close()
        tracking.fail()
        raise
    scale = getattr(options.experiment, "scale", "full")
    report: dict[str, Any] = {
        "rows": [{**row.result(), "scale": scale} for row in rows],
        "stages": [asdict(event) for event in store.events],
        "seconds": time.perf_counter() - started,
        "mlflow": {"tracking_uri": without_password(uri)},
    }
    where = {"tracking_uri": without_password(uri), "experiment_id": tracking.experiment_id}
    record = Record(run_id, settings, report["rows"], report["seconds"], where, {}, report["stages"])
    pictures: list[str] = []
    page: str | None = None
    if options.figures:
        pictures, page = _to_look_at(record, rows, store)
    for file in [*pictures, *([page] if page is not None else [])]:
        if is_local(file):
            tracking.log_file(Path(file))
    tracking.finish(report["rows"])
    report["mlflow"]["run_id"] = tracking.run_id  # a server that was away at the start may have come since
    write_record(store.root, record)
    if options.json_file:
        Path(options.json_file).write_text(json.dumps(report, indent=1) + "\n")
    show_results(report["rows"], console)
    if page is not None:
        console.print(f"\nAll of it on one page: {escape(without_password(page))}", soft_wrap=True)
    console.print(f"\n{report['seconds']:.0f} s. Compare runs {escape(how_to_look(uri))}", soft_wrap=True)


def _to_look_at(record: Record, rows: list[Row], store: Store) -> tuple[list[str], str | None]:
    """Where the figures over all networks are, and the page that has everything; no run ends for one that fails."""
    from pipelines.reporting.page import write_page  # here, as a run needs matplotlib in its end only
    from pipelines.run_figures import write_figures

    pictures: list[str] = []
    page = None
    try:
        pictures = write_figures(record, rows[-1], store.root)
    except Exception as error:
        store.note(in_passing(error, "figures over all networks", store.root))
    try:
        page = write_page(record, store.root)
    except Exception as error:
        store.note(in_passing(error, "page", store.root))
    return pictures, page


def preflight(options: Running, store: Store, plan: Plan) -> None:
    """What can go wrong with paths goes wrong now."""
    store.check_writable()
    plan.check_room()
    if PACKAGES in os.getcwd() and is_local(options.store) and not os.path.isabs(os.path.expanduser(options.store)):
        plan.note(
            f"store={options.store}: lies in the folder into which Ray has unpacked this job, and is not found again "
            "when a file of the job has changed; name one that all nodes mount, such as --store /shared/store"
        )
    if options.json_file:
        folder = Path(options.json_file).resolve().parent
        if not folder.is_dir() or Path(options.json_file).is_dir():
            raise ValueError(f"json={options.json_file}: name a file in a folder that exists")
        if not os.access(folder, os.W_OK):
            raise ValueError(f"json={options.json_file}: {folder} cannot be written to")


class Both(Observer):
    """Tells two observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def on_start(self, stage: Stage, artifact: Artifact) -> None:
        for observer in self._observers:
            observer.on_start(stage, artifact)

    def on_done(self, stage: Stage, artifact: Artifact, cached: bool, seconds: float) -> None:
        for observer in self._observers:
            observer.on_done(stage, artifact, cached, seconds)

    def on_waiting(self, stage: Stage, artifact: Artifact, holder: str) -> None:
        for observer in self._observers:
            observer.on_waiting(stage, artifact, holder)

    def on_corrupt(self, stage: Stage, artifact: Artifact, reason: str) -> None:
        for observer in self._observers:
            observer.on_corrupt(stage, artifact, reason)

    def on_note(self, text: str) -> None:
        for observer in self._observers:
            observer.on_note(text)
