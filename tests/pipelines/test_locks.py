"""One at a time: threads, processes, killed holders; file locks for local stores, leases in a real Ray."""

import errno
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest
from killing import wait_for

from pipelines.store import Stage, Store, Workspace
from pipelines.store.errors import StoreError
from pipelines.store.leases import ACTOR, NAMESPACE, LeaseTable, try_lease
from pipelines.store.locks import holder_of, single_flight, try_lock

REPOSITORY = Path(__file__).parents[2]


def child(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with single_flight(str(tmp_path), "key"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.05)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert list((tmp_path / "locks").iterdir()) == []


def test_processes_never_lose_a_count(tmp_path: Path) -> None:
    """Every release removes the lock file, so this also races opening against unlinking."""
    script = """
import sys
from pathlib import Path
from pipelines.store import locks
locks.POLL_SECONDS = (0.0005, 0.0005)
counter = Path(sys.argv[1]) / "counter"
for _ in range(100):
    with locks.single_flight(sys.argv[1], "key"):
        counter.write_text(str(int(counter.read_text()) + 1))
"""
    (tmp_path / "counter").write_text("0")
    children = [child(script, tmp_path) for _ in range(3)]
    assert [process.wait() for process in children] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "300"


def test_other_keys_are_free(tmp_path: Path) -> None:
    with single_flight(str(tmp_path), "one"), single_flight(str(tmp_path), "two"):
        assert holder_of(str(tmp_path), "one") == holder_of(str(tmp_path), "two") is not None
    assert holder_of(str(tmp_path), "one") is None


def test_a_raised_error_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), single_flight(str(tmp_path), "key"):
        raise RuntimeError
    assert holder_of(str(tmp_path), "key") is None


def test_a_lock_that_cannot_be_removed_does_not_hide_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has become read-only; the lock is free, and its file is taken over by the next."""
    held: list[Any] = []

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    def build() -> None:
        with monkeypatch.context() as patch, single_flight(str(tmp_path), "key") as lock:
            held.append(lock)
            patch.setattr(Path, "unlink", refuse)
            raise StoreError("the reason")

    with pytest.raises(StoreError, match="the reason"):
        build()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held[0].descriptor)
    assert (tmp_path / "locks/key.lock").exists()
    with single_flight(str(tmp_path), "key"):
        assert holder_of(str(tmp_path), "key") is not None
    assert list((tmp_path / "locks").iterdir()) == []


def test_kill_frees_the_lock_and_the_waiter_knew_its_holder(tmp_path: Path) -> None:
    script = """
import sys, time
from pipelines.store.locks import single_flight
with single_flight(sys.argv[1], "key"):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = child(script, tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    told: list[str] = []

    def kill(name: str) -> None:
        told.append(name)
        threading.Timer(0.5, os.kill, (holder.pid, signal.SIGKILL)).start()

    with single_flight(str(tmp_path), "key", on_wait=kill):
        assert holder.wait() == -signal.SIGKILL
    assert len(told) == 1
    assert told[0].startswith(f"process {holder.pid} on ")
    holder.stdout.close()


def test_a_stopped_holder_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock stays; a holder that lives is waited for much longer, and named again and again."""
    script = """
import sys, time
from pipelines.store import locks
locks.BEAT_SECONDS = 0.05
with locks.single_flight(sys.argv[1], "key"):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = child(script, tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    monkeypatch.setattr("pipelines.store.locks.REPEAT_SECONDS", 0.5)
    monkeypatch.setattr("pipelines.store.locks.POLL_SECONDS", (0.1, 0.1))
    told: list[float] = []

    def wait(name: str) -> None:
        told.append(time.monotonic())
        if len(told) == 4:  # at 0, 0.5, 1 and 1.5 s
            holder.send_signal(signal.SIGSTOP)

    try:
        with (
            pytest.raises(StoreError, match=rf"^key: process {holder.pid} on .* has shown no sign of life for 1 s"),
            single_flight(str(tmp_path), "key", wait, stall_seconds=1),
        ):
            raise AssertionError("it has the lock")
        assert len(told) >= 4
        assert time.monotonic() - told[3] > 0.9
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_forked_children_do_not_keep_the_lock(tmp_path: Path) -> None:
    """A data loader's worker inherits the descriptor and may outlive the build."""
    with single_flight(str(tmp_path), "key"):
        worker = os.fork()
        if worker == 0:
            time.sleep(60)
    try:
        lock = try_lock(str(tmp_path), "key")
        assert not isinstance(lock, str)
        lock.release()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def test_a_lock_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"key\.lock: cannot lock"):
        try_lock(str(tmp_path / "file/x"), "key")


def test_remote_store_without_ray_says_so() -> None:
    script = """
from pipelines.store.errors import StoreError
from pipelines.store.locks import try_lock
try:
    try_lock("memory://store", "key")
except StoreError as error:
    print(error)
"""
    said, _ = child(script).communicate()
    assert "needs Ray" in said
    assert "ray.init()" in said


def test_lease_table_by_hand() -> None:
    now = 0.0
    table = LeaseTable(clock=lambda: now)
    assert table.acquire("name", "a", "Ann", 10) is None
    assert table.acquire("name", "b", "Bob", 10) == "Ann"
    assert table.acquire("other", "b", "Bob", 10) is None
    now = 9.0
    assert table.renew("name", "a", "Ann", 10)  # until 19
    now = 18.0
    assert table.acquire("name", "b", "Bob", 10) == "Ann"
    now = 19.0
    assert table.holder("name") is None
    assert table.renew("name", "a", "Ann", 1)  # late, but no one else came: until 20
    now = 20.0
    assert table.acquire("name", "b", "Bob", 10) is None
    assert not table.renew("name", "a", "Ann", 10)
    table.release("name", "a")  # not hers any more
    assert table.holder("name") == "Bob"
    table.release("name", "b")
    assert table.holder("name") is None


def test_restarted_lease_table_lets_holders_speak_first() -> None:
    now = 0.0
    table = LeaseTable(quiet_seconds=30, clock=lambda: now)
    assert table.acquire("name", "b", "Bob", 30) is not None
    assert table.renew("name", "a", "Ann", 30)
    now = 29.0
    assert table.renew("name", "a", "Ann", 30)
    now = 31.0
    assert table.acquire("name", "b", "Bob", 30) == "Ann"
    assert table.acquire("other", "b", "Bob", 30) is None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    ray.shutdown()
    here = {"env_vars": {"PYTHONPATH": str(REPOSITORY)}}
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=here)
    yield ray
    ray.shutdown()


@dataclass(frozen=True)
class Slow(Stage):
    name: ClassVar[str] = "slow"
    version: ClassVar[int] = 1
    diary: Path

    def config(self) -> dict[str, Any]:
        return {}

    def build(self, work: Workspace) -> dict[str, Any]:
        with self.diary.open("a") as file:
            file.write("build\n")
        work.write_npy("shards/a.npy", np.arange(3))
        work.scratch.write_json("checkpoint.json", {})
        work.write_via("b.gz", lambda path: path.write_bytes(b"not really gzip"))
        time.sleep(0.5)
        return {}


def test_remote_store_builds_once_under_a_lease(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOWNET_CACHE", str(tmp_path / "cache"))
    stores = [Store(f"memory://{tmp_path.name}/store") for _ in range(3)]
    stage = Slow(tmp_path / "diary")
    threads = [threading.Thread(target=store.get, args=(stage,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "diary").read_text() == "build\n"
    assert sorted(store.events[0].cached for store in stores) == [False, True, True]

    made = Store(stores[0].root).get(stage)
    assert made.path("b.gz") == f"memory://{tmp_path.name}/store/artifacts/slow/{made.key}/b.gz"
    np.testing.assert_array_equal(made.read_npy("shards/a.npy"), [0, 1, 2])
    assert made.read_bytes("b.gz") == made.local_path("b.gz").read_bytes() == b"not really gzip"
    assert made.manifest()["files"].keys() == {"b.gz", "shards/a.npy"}
    assert not made.scratch.exists()
    made.folder.write_bytes("b.gz", b"not really gzap")
    assert not Store(made.root).is_cached(made)
    assert Store(made.root).get(stage).read_bytes("b.gz") == b"not really gzip"
    assert (tmp_path / "diary").read_text() == "build\n" * 2


def test_lease_of_a_killed_holder_runs_out(cluster: Any) -> None:
    class Holder:
        def hold(self, name: str) -> bool:
            self.lease = try_lease(name, seconds=1.0, renew_seconds=0.2)
            return not isinstance(self.lease, str)

    holder = cluster.remote(Holder).options(num_cpus=0).remote()
    assert cluster.get(holder.hold.remote("memory://store#killed"))
    time.sleep(1.5)  # longer than the lease: it is being renewed
    assert isinstance(try_lease("memory://store#killed"), str)
    told: list[str] = []

    def kill(name: str) -> None:
        told.append(name)
        cluster.kill(holder)

    started = time.monotonic()
    with single_flight("memory://store", "killed", kill, lease_seconds=1.0, renew_seconds=0.2) as lock:
        assert 0.1 < time.monotonic() - started < 10
        lock.confirm()
    assert len(told) == 1
    assert holder_of("memory://store", "killed") is None


def test_warnings_about_a_lease_show_no_password(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name begins with the store's address. Read from a logger of its own: others change where all of them lead."""
    said = io.StringIO()
    logger = logging.Logger("of this test")
    logger.addHandler(logging.StreamHandler(said))
    monkeypatch.setattr("pipelines.store.leases.log", logger)
    lease = try_lease("memory://me:hush-hush@store#key", seconds=30, renew_seconds=0.05)
    assert not isinstance(lease, str)
    monkeypatch.setattr("pipelines.store.leases.ANSWER_SECONDS", 0.2)
    actors = [p for p in psutil.Process().children(recursive=True) if "LeaseActor" in "".join(p.cmdline()[:1])]
    assert actors
    for process in actors:
        process.suspend()
    try:
        wait_for(lambda: "lease not renewed yet" in said.getvalue(), 20)
        lease.release()
    finally:
        for process in actors:
            process.resume()
    assert "lease not given back" in said.getvalue()
    assert "memory://me:***@store#key: " in said.getvalue()
    assert "hush-hush" not in said.getvalue()


def test_lease_survives_a_restart_of_its_actor(cluster: Any) -> None:
    lease = try_lease("memory://store#restart", seconds=30, renew_seconds=0.2)
    assert not isinstance(lease, str)
    cluster.kill(cluster.get_actor(ACTOR, namespace=NAMESPACE), no_restart=False)
    assert isinstance(try_lease("memory://store#restart"), str)  # the new actor lets the holder speak first
    time.sleep(1)
    assert holder_of("memory://store", "restart") is not None  # renewed with the new actor
    lease.confirm()
    lease.release()
    assert holder_of("memory://store", "restart") is None
