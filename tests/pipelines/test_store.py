"""The store keeps its word: built once, whole or absent, never read when corrupt, finished after a kill."""

import json
import os
import pickle
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diary_stages import Diary, Shards, Sum, in_child, wait_for_line

from pipelines.store import Artifact, CorruptArtifact, Store, StoreError, Workspace, stages
from pipelines.store.artifacts import verified_manifest
from pipelines.store.housekeeping import survey
from pipelines.store.storage import Folder, absolute_root


def test_built_once_then_cached(root: Path, diary: Path) -> None:
    told = Diary()
    store = Store(root, told)
    planned = store.plan(Shards(2, diary))
    assert not root.exists()  # planning writes nothing
    assert not store.is_cached(planned)
    shards = store.get(Shards(2, diary))
    again = store.get(Shards(2, diary))
    assert shards == again == planned
    assert store.is_cached(shards)
    assert diary.read_text().splitlines() == ["build", "shard 0", "shard 1"]
    assert told.told == ["start shards", "done shards False", "done shards True"]
    assert [(event.name, event.key, event.cached) for event in store.events] == [
        ("shards", shards.key, False),
        ("shards", shards.key, True),
    ]
    assert Store(root).get(Shards(2, diary)).info == {"rows": 8}
    assert not shards.scratch.exists()
    assert not list((root / "locks").iterdir())
    assert not list((root / "begun").iterdir())


def test_manifest_tells_how_it_was_made(root: Path, diary: Path) -> None:
    store = Store(root)
    shards = store.get(Shards(2, diary))
    manifest = store.get(Sum(shards, 10)).manifest()
    assert manifest["format"] == 1
    assert (manifest["stage"], manifest["stage_version"], manifest["label"]) == ("sum", 1, "sum x 10")
    assert manifest["config"] == {"scale": 10}
    assert manifest["inputs"] == {"shards": shards.ref}
    assert manifest["info"] == {"sum": 40}
    assert manifest["files"]["sum.json"]["bytes"] == len("40\n")
    assert manifest["versions"].keys() == {"python", "torch", "ray"}
    assert {"created", "seconds", "host", "commit", "key"} <= manifest.keys()


def test_label_and_hidden_fields_do_not_change_the_key(root: Path, diary: Path) -> None:
    store = Store(root)
    assert store.plan(Shards(2, diary)) == store.plan(Shards(2, Path("elsewhere"), raise_at=1))
    assert store.plan(Shards(2, diary)) != store.plan(Shards(3, diary))


def test_planned_inputs_are_built_first(root: Path, diary: Path) -> None:
    store = Store(root)
    assert store.get(Sum(store.plan(Shards(2, diary)))).read_json("sum.json") == 4
    assert [event.name for event in store.events] == ["shards", "sum"]


def test_input_known_by_key_alone_must_be_whole(root: Path) -> None:
    with pytest.raises(StoreError, match=r"sum\.shards=shards/0123: not whole"):
        Store(root).get(Sum(Artifact("shards", "0123", str(root))))


def test_reading_what_is_not_built(root: Path, diary: Path) -> None:
    shards = Store(root).plan(Shards(2, diary))
    for read in (shards.path, shards.local_path, shards.read_bytes, shards.read_json, shards.read_npy):
        with pytest.raises(StoreError, match="not built"):
            read("shards/0.npy")
    with pytest.raises(StoreError, match="not built"):
        shards.manifest()


def test_arrays_are_memory_mapped(root: Path, diary: Path) -> None:
    shards = Store(root).get(Shards(2, diary))
    assert isinstance(shards.read_npy("shards/1.npy"), np.memmap)
    assert not isinstance(shards.read_npy("shards/1.npy", mmap=False), np.memmap)
    np.testing.assert_array_equal(np.load(shards.local_path("shards/1.npy")), [1, 1, 1, 1])


def test_handles_travel(root: Path, diary: Path) -> None:
    store = Store(root, Diary())
    total = store.get(Sum(store.get(Shards(2, diary))))
    there = pickle.loads(pickle.dumps(total))
    assert there == total
    assert there.stage.config() == {"scale": 1}
    assert pickle.loads(pickle.dumps(store)).get(total.stage).read_json("sum.json") == 4
    work = pickle.loads(pickle.dumps(Workspace(store.root, "artifacts/a/b")))
    work.write_bytes("shards/0.bin", b"0")
    work.scratch.write_bytes("c", b"1")
    assert work.list() == ["shards/0.bin"]
    assert (root / "scratch/a/b/c").read_bytes() == b"1"


def test_a_build_may_not_leave_its_folder(root: Path) -> None:
    work = Workspace(str(root), "artifacts/a/b")
    for name in ("../other/x", "/etc/x", "manifest.json", "", "a/.tmp-x"):
        with pytest.raises(StoreError, match="name="):
            work.write_bytes(name, b"")


def test_failed_build_is_resumed(root: Path, diary: Path) -> None:
    store = Store(root)
    with pytest.raises(RuntimeError, match="power cut"):
        store.get(Shards(3, diary, raise_at=2))
    assert not store.plan(Shards(3, diary)).exists()
    assert not store.events
    store.get(Shards(3, diary))
    assert diary.read_text().splitlines() == ["build", "shard 0", "shard 1", "build", "shard 2"]


def test_failed_write_leaves_no_file(root: Path) -> None:
    work = Workspace(str(root), "artifacts/a/b")

    def half(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("power cut")

    work.write_bytes("x", b"old")
    with pytest.raises(RuntimeError):
        work.write_via("x", half)
    assert work.read_bytes("x") == b"old"
    assert os.listdir(root / "artifacts/a/b") == ["x"]


def test_empty_and_odd_arrays_come_back(root: Path) -> None:
    work = Workspace(str(root), "artifacts/a/b")
    for array in (np.empty((0, 3)), np.array(7), np.ones((2, 3), order="F")):
        work.write_npy("x.npy", array)
        np.testing.assert_array_equal(work.read_npy("x.npy"), array)
    with pytest.raises(ValueError, match="Object arrays"):
        work.write_npy("x.npy", np.array([{}]))


@pytest.mark.parametrize("root", ["file://{}", "local://{}", "memory://{}"])
def test_folders_behave_alike_everywhere(root: str, tmp_path: Path) -> None:
    """A local path, a remote file system that needs a move, an object store."""
    folder = Folder(absolute_root(root.format(tmp_path / "store")), "a/b")
    assert not folder.exists()
    assert folder.list() == folder.subfolders() == []
    folder.delete("x")
    folder.delete_all()
    folder.write_bytes("x", b"old")
    folder.write_bytes("x", b"new")
    folder.write_via("deep/y.gz", lambda path: path.write_bytes(b"plain"))
    assert folder.files() == {"deep/y.gz": 5, "x": 3}
    assert folder.subfolders() == ["deep"]
    assert folder.read_bytes("x") == b"new"
    assert folder.read_bytes("deep/y.gz") == b"plain"
    assert len(folder.walk()) == 2  # no temporary file stays
    with pytest.raises(StoreError, match="a/b/z: cannot read"):
        folder.read_bytes("z")
    folder.delete_all()
    assert not folder.exists()


def test_killed_build_is_finished_by_another(root: Path, diary: Path) -> None:
    child = in_child(root, f"Shards(4, Path({str(diary)!r}), hang_at=2)")
    wait_for_line(diary, "hanging")
    shards = Store(root).plan(Shards(4, diary))
    assert not shards.exists()
    assert any(entry.name.startswith("shards/.tmp-") for entry in shards.folder.walk())
    assert shards.folder.list() == ["shards/0.npy", "shards/1.npy"]
    assert shards.scratch.read_json("checkpoint.json") == {"next": 2}
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL

    Store(root).get(Shards(4, diary))
    lines = diary.read_text().splitlines()
    assert lines == ["build", "shard 0", "shard 1", "hanging", "build", "shard 2", "shard 3"]
    assert shards.manifest()["files"].keys() == {f"shards/{i}.npy" for i in range(4)}
    assert not any(".tmp-" in entry.name for entry in shards.folder.walk())
    assert not shards.scratch.exists()


@dataclass(frozen=True)
class Untidy(Shards):
    """A worker of it is killed in the middle of a file; another one makes the file again."""

    def build(self, work: Workspace) -> dict[str, Any]:
        Path(work.path("shards")).mkdir(parents=True)
        Path(work.path("shards/.tmp-123-0.npy")).write_bytes(b"half a shard")
        return super().build(work)


def test_what_killed_workers_left_does_not_stay(root: Path, diary: Path) -> None:
    made = Store(root).get(Untidy(2, diary))
    assert sorted(entry.name for entry in made.folder.walk()) == ["manifest.json", "shards/0.npy", "shards/1.npy"]


def truncate(folder: Path) -> None:
    os.truncate(folder / "shards/1.npy", 100)


def flip_a_byte(folder: Path) -> None:
    data = bytearray((folder / "shards/1.npy").read_bytes())
    data[-1] ^= 1
    (folder / "shards/1.npy").write_bytes(data)


def delete_a_file(folder: Path) -> None:
    (folder / "shards/1.npy").unlink()


def garble_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b'{"format": 1, "fil\xff')


def empty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[]")


def rename_manifest(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"key": "0" * 20}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (truncate, "shards/1.npy is 100 bytes"),
        (flip_a_byte, "shards/1.npy has another sha256"),
        (delete_a_file, "shards/1.npy is missing"),
        (garble_manifest, "manifest.json cannot be understood"),
        (empty_manifest, "manifest.json cannot be understood"),
        (rename_manifest, "shards/00000000000000000000"),
    ],
)
def test_corrupt_is_reported_and_rebuilt(
    root: Path, diary: Path, damage: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(stages.log, "warning", lambda text, *values: logged.append(text % values))
    folder = Path(Store(root).get(Shards(2, diary)).folder.path())
    damage(folder)
    diary.unlink()
    told = Diary()
    store = Store(root, told)
    assert not store.is_cached(store.plan(Shards(2, diary)))
    shards = store.get(Shards(2, diary))
    reason = told.told[0].removeprefix("corrupt ")
    assert says in reason
    assert told.told[1:] == ["start shards", "done shards False"]
    assert logged == [f"{reason}; it is rebuilt"]
    assert diary.read_text().splitlines() == ["build", "shard 0", "shard 1"]  # nothing corrupt was reused
    np.testing.assert_array_equal(shards.read_npy("shards/1.npy"), [1, 1, 1, 1])


def test_corrupt_input_is_rebuilt_before_it_is_read(root: Path, diary: Path) -> None:
    shards = Store(root).get(Shards(2, diary))
    flip_a_byte(Path(shards.folder.path()))
    store = Store(root)
    assert store.get(Sum(shards)).read_json("sum.json") == 4
    assert [event.name for event in store.events] == ["shards", "sum"]


def test_contents_are_checked_once_per_store(root: Path, diary: Path) -> None:
    store = Store(root)
    shards = store.get(Shards(2, diary))
    flip_a_byte(Path(shards.folder.path()))
    assert store.is_cached(shards)  # it built or checked this one itself
    assert not Store(root).is_cached(shards)
    (Path(shards.folder.path()) / "manifest.json").unlink()
    assert not store.is_cached(shards)  # deleted by gc, say: always seen


def test_large_artifacts_are_hashed_by_verify_only(root: Path, diary: Path) -> None:
    shards = Store(root).get(Shards(2, diary))
    flip_a_byte(Path(shards.folder.path()))
    assert verified_manifest(shards, hash_up_to=100) is not None
    with pytest.raises(CorruptArtifact, match="sha256"):
        verified_manifest(shards, hash_up_to=None)


def test_processes_build_once(root: Path, diary: Path) -> None:
    children = [in_child(root, f"Shards(2, Path({str(diary)!r}), seconds=0.5)") for _ in range(3)]
    for child in children:
        assert child.communicate()[1] == ""
        assert child.returncode == 0
    assert diary.read_text().splitlines() == ["build", "shard 0", "shard 1"]


def test_threads_build_once_and_waiters_say_so(root: Path, diary: Path) -> None:
    observers = [Diary() for _ in range(3)]
    stage = Shards(2, diary, seconds=0.5)
    threads = [threading.Thread(target=Store(root, told).get, args=(stage,)) for told in observers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert diary.read_text().splitlines() == ["build", "shard 0", "shard 1"]
    waits = [line for told in observers for line in told.told if line.startswith("waiting")]
    assert len(waits) == 2
    assert all(f"process {os.getpid()} on" in line for line in waits)


def test_store_that_cannot_be_written(tmp_path: Path, diary: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file/x", Path("/proc/nope")):
        for attempt in (Store(root).check_writable, lambda root=root: Store(root).get(Shards(1, diary))):
            with pytest.raises(StoreError) as caught:
                attempt()
            assert str(root) in str(caught.value)
            assert "\n" not in str(caught.value)
    assert not diary.exists()
    for name in ("", "nosuchscheme://x/y"):
        with pytest.raises(StoreError, match="store="):
            Store(name).check_writable()


def test_check_writable_leaves_an_empty_folder(root: Path) -> None:
    Store(root).check_writable()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    "write",
    [
        "work.write_npy('big.npy', np.ones(9999))",
        "work.write_via('big.npy', lambda path: safetensors.numpy.save_file({'a': np.ones(9999)}, path))",
    ],
)
def test_full_disk_is_one_line_and_no_truncated_file(write: str, root: Path) -> None:
    """A limit on the size of files stops a write half-way, as a full disk does."""
    limit = "import resource, safetensors.numpy, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    stage = "class Big(Sum):\n    def config(self): return {}\n    def inputs(self): return {}\n"
    stage += "    def build(self, work):\n        work.write_bytes('small', b'x')\n"
    stage += f"        {write}\n"
    child = in_child(root, "Big(None)", before=limit + stage)
    _, said = child.communicate()
    assert child.returncode == 1
    assert said.count("\n") == 1
    assert "big.npy: cannot write" in said
    assert "free space" in said
    [entry] = survey(str(root))
    assert entry.state == "half-built"
    assert [file.name for file in entry.artifact.folder.walk()] == ["small"]


def test_run_names_are_file_names(root: Path) -> None:
    with pytest.raises(ValueError, match=r"run_id='\.\./x'"):
        Store(root).record_run("../x", [])
