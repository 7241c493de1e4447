"""Single flight: a store root and a key go in, one process or thread at a time gets through.

A local store uses the kernel's file locks, which end with their process however it ends. Other stores have no
such lock; there a Ray actor grants leases (leases.py). A holder that is stopped, or on a machine that hangs, keeps a
file lock: those who wait see that its heart has ceased to beat.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pipelines.store.errors import StoreError, explained
from pipelines.store.leases import LEASE_SECONDS, RENEW_SECONDS, lease_holder, try_lease
from pipelines.store.storage import is_local

POLL_SECONDS = (0.2, 1.0)  # a waiter looks this often at first, and at last
REPEAT_SECONDS = 600.0  # and says so again after this time
BEAT_SECONDS = 10.0  # the holder of a file lock touches it this often
STALL_SECONDS = 3600.0  # as of resources.stall_minutes


class Lock(Protocol):
    """A lock that this thread holds."""

    def confirm(self) -> None:
        """Raise StoreError if someone else has been let in meanwhile."""

    def release(self) -> None: ...


@contextmanager
def single_flight(
    store_root: str,
    key: str,
    on_wait: Callable[[str], object] | None = None,
    *,
    lease_seconds: float = LEASE_SECONDS,
    renew_seconds: float = RENEW_SECONDS,
    stall_seconds: float = STALL_SECONDS,
) -> Iterator[Lock]:
    """Hold the key's lock for the body; `on_wait` is told who holds it, if we wait more than a moment, now and then.

    Raises StoreError when a holder shows no sign of life for `stall_seconds`.
    """
    pause, longest = POLL_SECONDS
    looks, told, beat, since = 0, 0.0, None, time.monotonic()
    while isinstance(lock := try_lock(store_root, key, lease_seconds, renew_seconds), str):
        looks += 1
        now = time.monotonic()
        # at the first look its name may not be written yet
        if on_wait is not None and (looks == 2 or (looks > 2 and now - told > REPEAT_SECONDS)):
            on_wait(lock)
            told = now
        if (seen := _last_beat(store_root, key)) is None or seen != beat:
            beat, since = seen, now
        elif now - since > stall_seconds:
            raise StoreError(
                f"{key}: {lock} is making it, and has shown no sign of life for {stall_seconds:.0f} s; look what it "
                "waits for, or end it, and run again: what is finished is kept"
            )
        time.sleep(pause)
        pause = min(1.5 * pause, longest)
    try:
        yield lock
    finally:
        lock.release()


def try_lock(
    store_root: str, key: str, lease_seconds: float = LEASE_SECONDS, renew_seconds: float = RENEW_SECONDS
) -> Lock | str:
    """The lock, or the name of its holder."""
    if is_local(store_root):
        return _lock_file(_lock_path(store_root, key))
    return try_lease(f"{store_root}#{key}", lease_seconds, renew_seconds)


def holder_of(store_root: str, key: str) -> str | None:
    """Who holds the lock now, without taking it."""
    if not is_local(store_root):
        return lease_holder(f"{store_root}#{key}")
    path = _lock_path(store_root, key)
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None  # closing gives the shared lock back
    except BlockingIOError:
        return _written_holder(descriptor)
    finally:
        os.close(descriptor)


def _last_beat(store_root: str, key: str) -> int | None:
    """When the holder last touched its lock. None: it is gone, or holds a lease, which it would have lost."""
    if not is_local(store_root):
        return None
    try:
        return _lock_path(store_root, key).stat().st_mtime_ns
    except OSError:
        return None


@dataclass(frozen=True)
class FileLock:
    path: Path
    descriptor: int
    _over: threading.Event = field(default_factory=threading.Event)

    def keep_beating(self) -> None:
        threading.Thread(target=self._beat, name=f"lock {self.path.name}", daemon=True).start()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with suppress(OSError):  # by name: its descriptor may be closed by now, and be another file's
                os.utime(self.path)

    def confirm(self) -> None:
        """A file lock cannot be lost while its process lives."""

    def release(self) -> None:
        """Raises nothing: what the body raised, such as that the disk cannot be written to, is what people must see."""
        self._over.set()
        try:
            with suppress(OSError):  # a file that stays does no harm: its next holder takes it as it is
                self.path.unlink(missing_ok=True)  # while still held: a waiter on this inode will see that it is gone
            with suppress(OSError):
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)  # closing alone would leave it to forked children
        finally:
            os.close(self.descriptor)


def _lock_path(store_root: str, key: str) -> Path:
    return Path(store_root) / "locks" / f"{key}.lock"


def _lock_file(path: Path) -> FileLock | str:
    with explained("lock", str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_still(path, descriptor):
                    _write_holder(descriptor)
                    lock = FileLock(path, descriptor)
                    lock.keep_beating()
                    return lock
            except BlockingIOError:
                holder = _written_holder(descriptor)
                os.close(descriptor)
                return holder
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its last holder removed this file between our open and our lock: again


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    """For messages only, so a disk too full for this line does not stop the holder."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now})
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, line.encode(), 0)


def _written_holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"  # it has the lock and has not written its name yet
