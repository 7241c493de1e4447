"""What a stage is, and the store that builds each one once."""

import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from pipelines.store.artifacts import (
    Artifact,
    CorruptArtifact,
    Workspace,
    discard,
    verified_manifest,
    write_manifest,
)
from pipelines.store.errors import StoreError
from pipelines.store.fingerprint import canonical, fingerprint
from pipelines.store.locks import STALL_SECONDS, Lock, single_flight
from pipelines.store.storage import Folder, absolute_root

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # of a stage or a run: both become file names
log = logging.getLogger("pipelines.store")


@dataclass(frozen=True)
class Estimate:
    """What a build will cost, for a plan that is shown before anything runs. 0 and "unknown": not said."""

    counts: str = "unknown"  # such as "50 000 images x 30 epochs"
    memory_bytes: int = 0
    disk_bytes: int = 0


NOT_IN_KEY = {"key": False}  # metadata of a field that does not change the output, such as a name for people


class Stage(ABC):
    """One arrow of the flow. Subclass it as a frozen dataclass of settings and input artifacts.

    Its fields are what it is made from: artifacts are its inputs, and all else is its config, except what is marked
    `field(metadata=NOT_IN_KEY)`.
    """

    name: ClassVar[str]  # such as "vocabulary"
    version: ClassVar[int]  # raised when the code's output changes

    @abstractmethod
    def build(self, work: Workspace) -> dict[str, Any]:
        """Write the artifact's files; return what the manifest should say about them."""

    def config(self) -> dict[str, Any]:
        """Everything that changes the output, as JSON values or settings models."""
        return {name: value for name, value in self._made_from().items() if not isinstance(value, Artifact)}

    def inputs(self) -> dict[str, Artifact]:
        """The artifacts that this one is made from, by role."""
        return {name: value for name, value in self._made_from().items() if isinstance(value, Artifact)}

    def _made_from(self) -> dict[str, Any]:
        declared: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        return {f.name: getattr(self, f.name) for f in declared if f.metadata.get("key", True)}

    def estimate(self) -> Estimate:
        return Estimate()

    def check(self) -> None:  # noqa: B027
        """Called while a run is planned: raise ValueError for what would otherwise fail hours later."""

    def check_workers(self, workers: int, gpu: bool) -> None:  # noqa: B027
        """Called once it is known how many train, and whether on GPUs, before anything is built: raises as `check`."""

    def notes(self) -> Sequence[str]:
        """Called while a run is planned: what people should know before it starts."""
        return ()

    def remark(self, artifact: Artifact) -> str | None:
        """What people should know of a finished artifact, in a line."""
        return None

    @property
    def label(self) -> str:
        """The name people see, such as "student round 2". Not part of the key."""
        return self.name


@dataclass(frozen=True)
class StageEvent:
    name: str
    label: str
    key: str
    cached: bool
    seconds: float  # of the whole get: checking, waiting and building


class Observer:
    """Told what the store does, as it does it. Subclass it for a progress display or for tracking."""

    def on_start(self, stage: Stage, artifact: Artifact) -> None:
        """A build begins here. A cached artifact has no start."""

    def on_done(self, stage: Stage, artifact: Artifact, cached: bool, seconds: float) -> None:
        """The artifact is whole."""

    def on_waiting(self, stage: Stage, artifact: Artifact, holder: str) -> None:
        """Another process builds it; told again every ten minutes."""

    def on_corrupt(self, stage: Stage, artifact: Artifact, reason: str) -> None:
        """It had gone bad and was removed; the build follows."""

    def on_note(self, text: str) -> None:
        """The program found something that people should know."""


class Store:
    """Finished artifacts under a root: a local folder or any URI that pyarrow or fsspec can open."""

    def __init__(self, root: str | os.PathLike[str], observer: Observer | None = None, machine: Any = None) -> None:
        self.root = absolute_root(root)
        # Handed to builds: how much of the cluster to use, which is no part of any key; or a function that looks anew.
        self.machine = machine
        self.observer = observer or Observer()
        self.events: list[StageEvent] = []
        self._verified: set[str] = set()

    def __reduce__(self) -> tuple[type["Store"], tuple[str]]:
        return Store, (self.root,)  # in another process nothing is verified yet and no one observes

    def plan(self, stage: Stage) -> Artifact:
        """The handle of the stage's artifact, built or not."""
        if not NAME.fullmatch(stage.name):
            raise ValueError(f"stage.name={stage.name!r}: becomes a folder; use letters, digits and ._-")
        input_keys = {role: artifact.key for role, artifact in stage.inputs().items()}
        key = fingerprint(stage.name, stage.version, stage.config(), input_keys)
        return Artifact(stage.name, key, self.root, stage)

    def is_cached(self, artifact: Artifact) -> bool:
        """Whether `get` would return it as it is. The contents are checked once per store object."""
        if artifact.key in self._verified:
            return artifact.exists()
        try:
            whole = verified_manifest(artifact) is not None
        except CorruptArtifact:
            return False
        if whole:
            self._verified.add(artifact.key)
        return whole

    def get(self, stage: Stage) -> Artifact:
        """The finished artifact; built if missing or corrupt, inputs first, by one process at a time."""
        started = time.perf_counter()
        artifact = self.plan(stage)
        cached = self.is_cached(artifact)
        if not cached:
            self._get_inputs(stage)

            def wait(holder: str) -> None:
                self.observer.on_waiting(stage, artifact, holder)

            stall = getattr(self.machine, "stall_seconds", STALL_SECONDS)
            with single_flight(self.root, artifact.key, wait, stall_seconds=stall) as lock:
                cached = self._is_whole_or_discarded(stage, artifact)  # another may have built it meanwhile
                if not cached:
                    self._build(stage, artifact, lock)
        seconds = time.perf_counter() - started
        self.events.append(StageEvent(stage.name, stage.label, artifact.key, cached, seconds))
        self.observer.on_done(stage, artifact, cached, seconds)
        return artifact

    def note(self, text: str) -> None:
        """Something that people should know of what is, or is not, built."""
        self.observer.on_note(text)

    def record_run(self, run_id: str, keys: Iterable[str], meta: dict[str, Any] | None = None) -> None:
        """Protect artifacts, by key or "stage/key", and all they are made from, from gc.

        Record a run when it starts, with the keys that `plan` gives, so that gc spares it while it runs.
        """
        if not NAME.fullmatch(run_id):
            raise ValueError(f"run_id={run_id!r}: becomes a file name; use letters, digits and ._-")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"run": run_id, "recorded": now, "keys": [*dict.fromkeys(keys)], "meta": meta or {}}
        Folder(self.root).write_json(f"runs/{run_id}.json", record)

    def check_writable(self) -> None:
        """Raise StoreError now rather than after the first hours of work. Creates the root."""
        root, probe = Folder(self.root), f"probe-{os.getpid()}"
        root.write_bytes(probe, b"may be deleted\n")
        root.delete(probe)

    def _get_inputs(self, stage: Stage) -> None:
        """An input may be a plan, deleted by gc, or corrupt: never build from one that is not whole."""
        for role, artifact in stage.inputs().items():
            if self.is_cached(artifact):
                continue
            if artifact.stage is None:
                raise StoreError(f"{stage.name}.{role}={artifact.ref}: not whole; use Store.get on it first")
            self.get(artifact.stage)

    def _is_whole_or_discarded(self, stage: Stage, artifact: Artifact) -> bool:
        try:
            whole = verified_manifest(artifact) is not None
        except CorruptArtifact as error:
            log.warning("%s; it is rebuilt", error)
            self.observer.on_corrupt(stage, artifact, str(error))
            discard(artifact)
            return False
        if whole:
            self._verified.add(artifact.key)
        return whole

    def _build(self, stage: Stage, artifact: Artifact, lock: Lock) -> None:
        machine = self.machine() if callable(self.machine) else self.machine
        work = Workspace(self.root, artifact.folder.prefix, machine)
        work.delete_temporaries()
        work.scratch.delete_temporaries()
        inputs = {role: made_from.ref for role, made_from in stage.inputs().items()}
        artifact.begun.write_json(f"{artifact.key}.json", {"label": stage.label, "inputs": inputs})
        self.observer.on_start(stage, artifact)
        started = time.perf_counter()
        info = stage.build(work)
        seconds = round(time.perf_counter() - started, 3)
        lock.confirm()
        work.delete_temporaries()  # of workers that were killed meanwhile; what they left would stay for ever
        made = {
            "stage_version": stage.version,
            "label": stage.label,
            "config": canonical(stage.config()),
            "inputs": inputs,
            "info": info,
            "seconds": seconds,
        }
        write_manifest(artifact, made)
        self._verified.add(artifact.key)
        try:
            work.scratch.delete_all()
            artifact.begun.delete(f"{artifact.key}.json")
        except StoreError as error:  # the artifact is whole; gc sweeps the rest
            log.warning("%s", error)
