"""What lies in a store and what no run needs: a root goes in, a survey and the garbage come out.

An artifact is kept when a recorded run names it, someone holds its lock, or a kept one is made from it.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pipelines.store.artifacts import Artifact, CorruptArtifact, discard, verified_manifest
from pipelines.store.errors import StoreError
from pipelines.store.locks import holder_of, try_lock
from pipelines.store.storage import Folder


@dataclass(frozen=True)
class Entry:
    """One artifact, finished or not, as it lies in the store."""

    artifact: Artifact
    state: str  # whole, half-built or corrupt
    bytes: int
    scratch_bytes: int
    changed: float  # when its newest file was written, seconds since the epoch
    made_from: tuple[str, ...]  # keys
    problem: str = ""

    @property
    def key(self) -> str:
        return self.artifact.key


class Run(NamedTuple):
    id: str
    keys: frozenset[str]
    recorded: datetime


class Garbage(NamedTuple):
    runs: list[Run]  # too old to keep
    entries: list[Entry]  # whole folders to delete
    leftovers: list[Entry]  # kept and whole, with scratch that a kill between two steps left behind
    held: dict[str, str]  # key: holder of its lock, for those that only the lock protects

    @property
    def bytes(self) -> int:
        whole = sum(entry.bytes + entry.scratch_bytes for entry in self.entries)
        return whole + sum(entry.scratch_bytes for entry in self.leftovers)


def require_store(root: str) -> None:
    if os.path.isfile(root):
        raise StoreError(f"store={root}: not a folder; name a store with --store or $BOWNET_STORE")
    if not Folder(root).exists():
        raise StoreError(f"store={root}: there is no such store; name one with --store or $BOWNET_STORE")


def artifacts(root: str) -> list[Artifact]:
    """Every artifact that has a folder, of files or of scratch, by stage and key."""
    found = {
        (stage, key)
        for kind in ("artifacts", "scratch")
        for stage in Folder(root, kind).subfolders()
        for key in Folder(root, f"{kind}/{stage}").subfolders()
    }
    return [Artifact(stage, key, root) for stage, key in sorted(found)]


def survey(root: str, hash_up_to: int | None = 0) -> list[Entry]:
    """All of them with state and size; contents are hashed only if asked (None: all)."""
    return [_look(artifact, hash_up_to) for artifact in artifacts(root)]


def recorded_runs(root: str) -> list[Run]:
    """A run that cannot be read is an error, because gc would take it for a run that needs nothing."""
    folder = Folder(root, "runs")
    runs = []
    for name in folder.list():
        record = folder.read_json(name)
        try:
            keys = frozenset(_key(ref) for ref in record["keys"])
            runs.append(Run(name.removesuffix(".json"), keys, datetime.fromisoformat(record["recorded"])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"{folder.path(name)}: not the record of a run ({error!r}); repair or delete it"
            raise StoreError(message) from error
    return runs


def needed(keys: Iterable[str], entries: Iterable[Entry]) -> set[str]:
    """The keys, and those of all that they are made from."""
    made_from = {entry.key: entry.made_from for entry in entries}
    seen: set[str] = set()
    todo = [*keys]
    while todo:
        key = todo.pop()
        if key not in seen:
            seen.add(key)
            todo.extend(made_from.get(key, ()))
    return seen


def find_garbage(root: str, keep_days: float | None = None) -> Garbage:
    """What gc would delete. `keep_days`: runs recorded earlier no longer protect anything."""
    if keep_days is not None and keep_days < 0:
        raise StoreError(f"keep_days={keep_days}: cannot be negative; use 0 to drop all runs")
    entries = survey(root)
    runs = recorded_runs(root)
    oldest = datetime.now(UTC) - timedelta(days=keep_days) if keep_days is not None else None
    dropped = [run for run in runs if oldest is not None and run.recorded < oldest]
    by_runs = needed((key for run in runs if run not in dropped for key in run.keys), entries)
    held = {entry.key: holder for entry in entries if (holder := holder_of(root, entry.key)) is not None}
    kept = by_runs | needed(held, entries)
    return Garbage(
        runs=dropped,
        entries=[entry for entry in entries if entry.key not in kept],
        leftovers=[entry for entry in entries if entry.key in kept - {*held} and _is_leftover(entry)],
        held={key: holder for key, holder in held.items() if key not in by_runs},
    )


def delete_garbage(root: str, garbage: Garbage) -> tuple[list[Entry], list[Entry]]:
    """Delete under each artifact's lock; return what was deleted, and what came into use and was spared."""
    for run in garbage.runs:
        Folder(root, "runs").delete(f"{run.id}.json")
    deleted, spared = [], []
    for entry in [*garbage.entries, *garbage.leftovers]:
        lock = try_lock(root, entry.key)
        if isinstance(lock, str):
            spared.append(entry)
            continue
        try:
            if entry in garbage.leftovers:
                deleted.append(replace(entry, bytes=0))
            elif any(entry.key in run.keys for run in recorded_runs(root)):  # a run began since we looked
                spared.append(entry)
                continue
            else:
                discard(entry.artifact)
                deleted.append(entry)
            entry.artifact.scratch.delete_all()
            entry.artifact.begun.delete(f"{entry.key}.json")
        finally:
            lock.release()
    return deleted, spared


def _look(artifact: Artifact, hash_up_to: int | None) -> Entry:
    files = artifact.folder.walk()
    scratch = artifact.scratch.walk()
    problem, manifest = "", None
    try:
        manifest = verified_manifest(artifact, hash_up_to)
        state = "whole" if manifest else "half-built"
    except CorruptArtifact as error:
        state, problem = "corrupt", str(error)
    return Entry(
        artifact=artifact,
        state=state,
        bytes=sum(file.bytes for file in files),
        scratch_bytes=sum(file.bytes for file in scratch),
        changed=max((file.modified for file in [*files, *scratch]), default=0.0) or time.time(),
        made_from=_made_from(artifact, manifest),
        problem=problem,
    )


def _made_from(artifact: Artifact, manifest: dict[str, Any] | None) -> tuple[str, ...]:
    note = manifest
    if note is None and artifact.begun.exists(f"{artifact.key}.json"):
        note = artifact.begun.read_json(f"{artifact.key}.json")
    return tuple(_key(ref) for ref in (note or {}).get("inputs", {}).values())


def _is_leftover(entry: Entry) -> bool:
    begun = entry.artifact.begun.exists(f"{entry.key}.json")
    return entry.state == "whole" and (begun or entry.scratch_bytes > 0)


def _key(ref: str) -> str:
    return ref.rpartition("/")[2]
