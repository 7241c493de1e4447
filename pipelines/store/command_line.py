"""The store's command line, `python -m pipelines.store ls|show KEY|gc|verify`: arguments in, exit code out.

0: done; 1: verify found corrupt artifacts; 2: the question itself was wrong, said in one line.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

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
from pipelines.store.storage import absolute_root, is_local


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        root = absolute_root(options.store)
        require_store(root)
        match options.command:
            case "ls":
                return _ls(root)
            case "show":
                return _show(root, options.key)
            case "verify":
                return _verify(root)
            case _:
                return _gc(root, options.keep_days, options.yes)
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `ls | head` is not an error; the rest of the text has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipelines.store", description="Look after a store.")
    where = argparse.ArgumentParser(add_help=False)
    default = os.environ.get("BOWNET_STORE") or "store"
    where.add_argument("--store", default=default, help="path or URI (default: $BOWNET_STORE, else ./store)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ls", parents=[where], help="list artifacts: size, age, runs that need them, state")
    show = commands.add_parser("show", parents=[where], help="print a manifest and what it is made from")
    show.add_argument("key", help="a key or the beginning of one")
    commands.add_parser("verify", parents=[where], help="hash every file of every artifact")
    gc = commands.add_parser("gc", parents=[where], help="delete what no recorded run needs")
    gc.add_argument("--yes", action="store_true", help="delete; without it gc only says what it would free")
    gc.add_argument("--keep-days", type=float, help="first drop the runs recorded more than so many days ago")
    return parser


def _ls(root: str) -> int:
    entries = survey(root)
    by_run = [needed(run.keys, entries) for run in recorded_runs(root)]
    rows = [("stage", "key", "size", "age", "runs", "state")]
    for entry in entries:
        runs = sum(entry.key in keys for keys in by_run)
        state = entry.state
        if state != "whole" and (holder := _known_holder(root, entry.key)):
            state += f" (being built by {holder})"
        size, age = _size(entry.bytes + entry.scratch_bytes), _age(entry.changed)
        rows.append((entry.artifact.stage_name, entry.key, size, age, str(runs), state))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _show(root: str, prefix: str) -> int:
    matches = [found for found in artifacts(root) if found.key.startswith(prefix) or found.ref == prefix]
    if len(matches) != 1:
        what = f"could be {', '.join(a.ref for a in matches)}" if matches else "no such artifact"
        remedy = "give more digits" if matches else "`ls` prints the keys"
        raise StoreError(f"key={prefix}: {what}; {remedy}")
    print(json.dumps(matches[0].manifest(), indent=2))
    print()
    _print_ancestry(matches[0], "", 0)
    return 0


def _print_ancestry(artifact: Artifact, role: str, depth: int) -> None:
    gone = "" if artifact.exists() else "  (not in the store)"
    print("  " * depth + (f"{role}: " if role else "") + artifact.ref + gone)
    if gone:
        return
    for next_role, ref in artifact.manifest()["inputs"].items():
        stage, _, key = ref.rpartition("/")
        _print_ancestry(Artifact(stage, key, artifact.root), next_role, depth + 1)


def _verify(root: str) -> int:
    entries = survey(root, hash_up_to=None)
    corrupt = [entry for entry in entries if entry.state == "corrupt"]
    for entry in corrupt:
        print(f"corrupt: {entry.problem}")
    whole = [entry for entry in entries if entry.state == "whole"]
    print(f"{len(whole)} whole ({_size(sum(entry.bytes for entry in whole))}), {len(corrupt)} corrupt")
    return 1 if corrupt else 0


def _gc(root: str, keep_days: float | None, yes: bool) -> int:
    if not is_local(root):
        _join_cluster(root)
    garbage = find_garbage(root, keep_days)
    for run in garbage.runs:
        print(f"run {run.id}, recorded {run.recorded:%Y-%m-%d}")
    for entry in garbage.entries:
        print(f"{entry.artifact.ref}  {_size(entry.bytes + entry.scratch_bytes)}  {entry.state}")
    for entry in garbage.leftovers:
        print(f"{entry.artifact.ref}  {_size(entry.scratch_bytes)}  scratch of a finished build")
    for key, holder in garbage.held.items():
        print(f"kept: {key} is being built by {holder}")
    if not yes:
        print(f"would free {_size(garbage.bytes)}; nothing was deleted, add --yes to delete")
        return 0
    deleted, spared = delete_garbage(root, garbage)
    for entry in spared:
        print(f"kept: {entry.artifact.ref} came into use meanwhile")
    print(f"freed {_size(sum(entry.bytes + entry.scratch_bytes for entry in deleted))}")
    return 0


def _join_cluster(root: str) -> None:
    """The locks of a remote store live in the Ray cluster that builds into it."""
    import ray

    if ray.is_initialized():
        return
    try:
        ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        said = str(error).split("\n")[0]
        message = f"store={root}: gc must ask the Ray cluster who builds; run it on that cluster ({said})"
        raise StoreError(message) from error


def _known_holder(root: str, key: str) -> str | None:
    with suppress(StoreError):  # a remote store seen from outside its cluster
        return holder_of(root, key)
    return None


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for bigger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, bigger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _age(changed: float) -> str:
    seconds = max(0.0, time.time() - changed)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
