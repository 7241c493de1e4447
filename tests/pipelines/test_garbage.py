"""What `gc` may free: nothing that a run, a build or an input of theirs needs."""

from pathlib import Path

import pytest
from diary_stages import Shards, Sum

from pipelines.store import Store, StoreError
from pipelines.store.housekeeping import delete_garbage, find_garbage, survey
from pipelines.store.locks import single_flight


def test_gc_keeps_what_runs_need_and_its_ancestors(root: Path, diary: Path) -> None:
    store = Store(root)
    kept = store.get(Sum(store.get(Shards(2, diary))))
    freed = store.get(Sum(store.get(Shards(3, diary))))
    with pytest.raises(RuntimeError):
        store.get(Shards(9, diary, raise_at=1))
    store.record_run("monday", [kept.ref], {"preset": "demo"})
    garbage = find_garbage(store.root)
    assert sorted(entry.state for entry in garbage.entries) == ["half-built", "whole", "whole"]
    deleted, spared = delete_garbage(store.root, garbage)
    assert len(deleted) == 3
    assert not spared
    assert {entry.key for entry in survey(store.root)} == {kept.key, store.plan(Shards(2, diary)).key}
    assert not store.is_cached(freed)
    assert Store(root).is_cached(kept)
    assert not list((root / "begun").iterdir())


def test_gc_never_touches_what_is_being_built_nor_its_inputs(root: Path, diary: Path) -> None:
    store = Store(root)
    shards = store.get(Shards(2, diary))
    total = store.plan(Sum(shards))
    total.begun.write_json(f"{total.key}.json", {"inputs": {"shards": shards.ref}})
    total.scratch.write_bytes("checkpoint", b"half")
    with single_flight(store.root, total.key):
        garbage = find_garbage(store.root)
        assert garbage.entries == []
        assert [*garbage.held] == [total.key]
    garbage = find_garbage(store.root)
    assert {entry.key for entry in garbage.entries} == {shards.key, total.key}
    with single_flight(store.root, total.key):  # taken between the survey and the deletion
        deleted, spared = delete_garbage(store.root, garbage)
    assert [entry.key for entry in deleted] == [shards.key]
    assert [entry.key for entry in spared] == [total.key]
    assert total.scratch.read_bytes("checkpoint") == b"half"


def test_gc_spares_a_run_that_began_meanwhile(root: Path, diary: Path) -> None:
    store = Store(root)
    shards = store.get(Shards(2, diary))
    garbage = find_garbage(store.root)
    store.record_run("late", [shards.key], {})
    assert delete_garbage(store.root, garbage) == ([], garbage.entries)
    assert Store(root).is_cached(shards)


def test_gc_sweeps_scratch_that_outlived_its_build(root: Path, diary: Path) -> None:
    store = Store(root)
    shards = store.get(Shards(2, diary))
    store.record_run("monday", [shards.key])
    shards.scratch.write_bytes("checkpoint", b"old")
    delete_garbage(store.root, find_garbage(store.root))
    assert not shards.scratch.exists()
    assert Store(root).is_cached(shards)


def test_gc_refuses_a_run_it_cannot_read(root: Path, diary: Path) -> None:
    store = Store(root)
    store.get(Shards(2, diary))
    (root / "runs").mkdir()
    for text in ("{", '{"run": "x"}'):
        (root / "runs/x.json").write_text(text)
        with pytest.raises(StoreError, match=r"runs/x\.json"):
            find_garbage(store.root)
