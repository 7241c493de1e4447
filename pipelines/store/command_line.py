"""The store's command line, `python -m pipelines.store ls|show KEY|gc|verify`: arguments in, exit code out.

0: done; 1: verify found corrupt artifacts, or a defect; 2: the question itself was wrong, said in one line.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bownet.masking import without_password
from pipelines.ending import Arguments, answered, usual_store
from pipelines.store.artifacts import Artifact
from pipelines.store.errors import StoreError
from pipelines.store.housekeeping import (
    artifacts,
    delete_garbage,
    find_garbage,
    needed,
    recorded_runs,
    require_store,
    survey,
)
from pipelines.store.locks import holder_of
from pipelines.store.storage import absolute_root, human_size, is_local

Report = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else [*arguments]
    return answered(lambda: _answer(parser().parse_args(given)), given, usual_store())


def _answer(options: argparse.Namespace) -> int:
    root = absolute_root(options.store)
    require_store(root)
    match options.command:
        case "ls":
            report = _ls(root)
        case "show":
            report = _show(root, options.key)
        case "verify":
            report = _verify(root)
        case _:
            report = _gc(root, options.keep_days, options.yes)
    try:
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    except OSError as error:
        raise StoreError(f"json={options.json}: {error.strerror}; name a file in a folder that exists") from error
    return 1 if report.get("corrupt") else 0


def parser() -> argparse.ArgumentParser:
    made = Arguments(prog="python -m pipelines.store", description="Look after a store.")
    where = Arguments(add_help=False)
    where.add_argument("--store", default=usual_store(), help="path or URI (default: $BOWNET_STORE, else ./store)")
    where.add_argument("--json", metavar="FILE", help="also write the answer to this file")
    where.add_argument("--debug", action="store_true", help="show a traceback with an error")
    commands = made.add_subparsers(dest="command", required=True)
    commands.add_parser("ls", parents=[where], help="list artifacts: size, age, runs that need them, state")
    show = commands.add_parser("show", parents=[where], help="print a manifest and what it is made from")
    show.add_argument("key", help="a key or the beginning of one")
    commands.add_parser("verify", parents=[where], help="hash every file of every artifact")
    gc = commands.add_parser("gc", parents=[where], help="delete what no recorded run needs")
    gc.add_argument("--yes", action="store_true", help="delete; without it gc only says what it would free")
    gc.add_argument("--keep-days", type=float, help="first drop the runs recorded more than so many days ago")
    return made


def _ls(root: str) -> Report:
    entries = survey(root)
    by_run = [needed(run.keys, entries) for run in recorded_runs(root)]
    rows = [("stage", "key", "size", "age", "runs", "state")]
    report = []
    for entry in entries:
        runs = sum(entry.key in keys for keys in by_run)
        state = entry.state
        if state != "whole" and (holder := _known_holder(root, entry.key)):
            state += f" (being built by {holder})"
        bytes = entry.bytes + entry.scratch_bytes
        report.append(
            {"stage": entry.artifact.stage_name, "key": entry.key, "bytes": bytes, "runs": runs, "state": state}
        )
        size, age = human_size(bytes), _age(entry.changed)
        rows.append((entry.artifact.stage_name, entry.key, size, age, str(runs), state))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return {"artifacts": report}


def _show(root: str, prefix: str) -> Report:
    matches = [found for found in artifacts(root) if found.key.startswith(prefix) or found.ref == prefix]
    if len(matches) != 1:
        what = f"could be {', '.join(a.ref for a in matches)}" if matches else "no such artifact"
        remedy = "give more digits" if matches else "`ls` prints the keys"
        raise StoreError(f"key={prefix}: {what}; {remedy}")
    manifest = matches[0].manifest()
    print(without_password(json.dumps(manifest, indent=2)))
    print()
    _print_ancestry(matches[0], "", 0)
    return {"manifest": manifest}


def _print_ancestry(artifact: Artifact, role: str, depth: int) -> None:
    gone = "" if artifact.exists() else "  (not in the store)"
    print("  " * depth + (f"{role}: " if role else "") + artifact.ref + gone)
    if gone:
        return
    for next_role, ref in artifact.manifest()["inputs"].items():
        stage, _, key = ref.rpartition("/")
        _print_ancestry(Artifact(stage, key, artifact.root), next_role, depth + 1)


def _verify(root: str) -> Report:
    entries = survey(root, hash_up_to=None)
    corrupt = [entry for entry in entries if entry.state == "corrupt"]
    for entry in corrupt:
        print(f"corrupt: {entry.problem}")
    whole = [entry for entry in entries if entry.state == "whole"]
    print(f"{len(whole)} whole ({human_size(sum(entry.bytes for entry in whole))}), {len(corrupt)} corrupt")
    return {"whole": len(whole), "corrupt": [entry.problem for entry in corrupt]}


def _gc(root: str, keep_days: float | None, yes: bool) -> Report:
    if not is_local(root):
        _join_cluster(root)
    garbage = find_garbage(root, keep_days)
    for run in garbage.runs:
        print(f"run {run.id}, recorded {run.recorded:%Y-%m-%d}")
    for entry in garbage.entries:
        print(f"{entry.artifact.ref}  {human_size(entry.bytes + entry.scratch_bytes)}  {entry.state}")
    for entry in garbage.leftovers:
        print(f"{entry.artifact.ref}  {human_size(entry.scratch_bytes)}  scratch of a finished build")
    for key, holder in garbage.held.items():
        print(f"kept: {key} is being built by {holder}")
    if not yes:
        print(f"would free {human_size(garbage.bytes)}; nothing was deleted, add --yes to delete")
        return {"would_free": garbage.bytes, "artifacts": [entry.artifact.ref for entry in garbage.entries]}
    deleted, spared = delete_garbage(root, garbage)
    for entry in spared:
        print(f"kept: {entry.artifact.ref} came into use meanwhile")
    freed = sum(entry.bytes + entry.scratch_bytes for entry in deleted)
    print(f"freed {human_size(freed)}")
    return {"freed": freed, "artifacts": [entry.artifact.ref for entry in deleted]}


def _join_cluster(root: str) -> None:
    """The locks of a remote store live in the Ray cluster that builds into it."""
    import ray

    from pipelines.machine import on_loopback

    if ray.is_initialized():
        return
    try:
        with on_loopback():  # where a program's own Ray listens
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        said = str(error).split("\n")[0]
        message = f"store={root}: gc must ask the Ray cluster who builds; run it on that cluster ({said})"
        raise StoreError(message) from error


def _known_holder(root: str, key: str) -> str | None:
    with suppress(StoreError):  # a remote store seen from outside its cluster
        return holder_of(root, key)
    return None


def _age(changed: float) -> str:
    seconds = max(0.0, time.time() - changed)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
