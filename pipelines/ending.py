"""How a program ends: a function goes in, an exit code comes out; what it raises is answered in one line.

Exit codes: 0 done, 1 a defect or a cluster that failed, 2 something the user can mend, 130 interrupted. The traceback
of a defect goes into a file, which the line names; `--debug` shows it instead, that of any error.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from bownet.masking import without_password
from pipelines.stages.watch import Stalled

LESS_ON_GPU = (
    "use a smaller batch for what was running, such as --student.optimiser.batch 64, or "
    "--student.optimiser.accumulate 2, which computes it in parts"
)
LESS_ON_NODE = (
    "use a larger --resources.cpus-per-worker, so that fewer workers share a node, a smaller --data.shard-size, "
    "--resources.stream True, or nodes with more memory; the same command goes on from what is finished"
)


def answered(program: Callable[[], int | None], arguments: Sequence[str], default_store: str = "store") -> int:
    """Runs a program that was given these arguments; returns its exit code."""
    try:
        return _said_whole(program)
    except KeyboardInterrupt:
        print("interrupted; the same command continues where this one stopped", file=sys.stderr)
        return 130
    except Exception as error:
        cause = root_cause(error)
        if isinstance(cause, BrokenPipeError) and _is_unread():  # `... | head` is not an error
            return 0
        line, code = in_a_line(cause)
        if "--debug" in arguments:
            print(without_password("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        elif code == 1:
            kept = keep_traceback(error, _store(arguments) or default_store)
            line += f"; the traceback is in {kept}" if kept else "; run it again with --debug for the traceback"
        print(f"error: {without_password(line)}", file=sys.stderr)
        return code


def _said_whole(program: Callable[[], int | None]) -> int:
    """Python would tell only at its very end that what stays in the buffer has no reader."""
    try:
        code = program() or 0
    except SystemExit:  # of --help
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def _is_unread() -> bool:
    """Whether nobody reads standard output any more; the rest of the text then goes nowhere."""
    look = select.poll()
    with suppress(OSError, ValueError):  # no file, or closed
        look.register(sys.stdout.fileno(), 0)  # POLLERR is told unasked
        if any(said & select.POLLERR for _, said in look.poll(0)):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return True
    return False


def usual_store() -> str:
    """Of programs that look at a store, and have no experiment."""
    return os.environ.get("BOWNET_STORE") or "store"


class Arguments(argparse.ArgumentParser):
    """A mistake is an error for `answered`, in one line, not a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message[0].lower()}{message[1:]}; --help shows what there is")


def in_a_line(cause: BaseException) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    text = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
    if isinstance(cause, ValueError | OSError):
        return text or type(cause).__name__, 2
    whose = type(cause).__module__.partition(".")[0] if type(cause).__name__ == "OutOfMemoryError" else ""
    if whose == "torch":
        return f"memory: a GPU's is full ({text.partition('. ')[0].rstrip('.')}); {LESS_ON_GPU}", 2
    if whose == "ray":
        return f"cluster: a node's memory was full, and Ray ended a task there; {LESS_ON_NODE}", 1
    if isinstance(cause, Stalled):  # has its remedy
        return text, 1
    named = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
    if type(cause).__module__.partition(".")[0] == "ray":
        return f"cluster: {named.rstrip('.')}; the same command goes on from what is finished", 1
    return f"internal: {named}", 1


def in_passing(error: Exception, what: str, store: str) -> str:
    """A line about what failed and a run can do without, such as a figure; its traceback is kept.

    What the store, the memory or the cluster has to say ends the run as ever: raised again.
    """
    from pipelines.store import StoreError  # here, as keep_traceback has it

    cause = root_cause(error)
    line, _ = in_a_line(cause)
    if isinstance(cause, StoreError | OSError | Stalled) or line.startswith(("memory:", "cluster:")):
        raise error
    if kept := keep_traceback(error, store):
        line += f"; the traceback is in {kept}"
    return without_password(f"{what} left out: {line}")


def keep_traceback(error: BaseException, store: str) -> str | None:
    """Where the traceback now is: in the store, if there is one that can be written to, or the temporary folder."""
    text = without_password("".join(traceback.format_exception(error)))
    name = f"errors/{time.strftime('%Y-%m-%d-%H%M%S')}-{os.getpid()}.txt"
    with suppress(Exception):  # one error is told; that this store cannot take it is another
        from pipelines.store.storage import Folder, absolute_root  # here, as a program that ends well needs no pyarrow

        folder = Folder(absolute_root(store))
        if folder.exists():
            folder.write_bytes(name, text.encode())
            return folder.path(name)
    with (
        suppress(OSError),
        tempfile.NamedTemporaryFile("w", prefix="bownet-error-", suffix=".txt", delete=False) as file,
    ):
        file.write(text)
        return file.name
    return None


def root_cause(error: BaseException) -> BaseException:
    """The error that user code raised, out of the wrappers that Ray puts around it."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        failures = getattr(error, "worker_failures", None)  # Ray Train's
        inner = next(iter(failures.values()), None) if failures else getattr(error, "cause", None) or error.__cause__
        if isinstance(inner, BaseException) and not isinstance(error, ValueError):
            error = inner
        elif isinstance(getattr(error, "cause", None), BaseException):
            error = error.cause  # type: ignore[attr-defined]
    return error


def _store(arguments: Sequence[str]) -> str:
    """What --store is given, before it is known whether the arguments can be understood."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument.partition("=")[0] == "--store":
            return argument.partition("=")[2] or following
    return ""
