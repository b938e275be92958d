from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sluice.storage.actions import CommitInfo, Protocol
from sluice.storage.errors import CorruptLogFile, LogGap, TableNotFound, VersionNotFound
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.examination import Finding, examine_log
from sluice.storage.log.paths import checkpoint_path, commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.log.timetravel import commit_info, read_commit, version_at
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import METADATA, START, add, counted, new_store, put_commit

ENABLED = {"delta.enableInCommitTimestamps": "true"}
TIMED = Protocol(1, 7, None, ("inCommitTimestamp",))


def at_times(*modified_ms: int) -> MemoryStore:
    """A log whose commit files were written at these times."""
    store = new_store()
    for version, time in enumerate(modified_ms):
        store.disk.clock_ms = lambda time=time: time  # type: ignore[misc]
        put_commit(store, version, *(START if version == 0 else [add(f"f{version}")]))
    return store


def with_own_times(*timestamps: int) -> MemoryStore:
    """A log with in-commit timestamps from version 0 on, whose files all look as old as the epoch."""
    store = new_store()
    store.disk.clock_ms = lambda: 1
    for version, time in enumerate(timestamps):
        first = [TIMED, replace(METADATA, configuration=ENABLED)] if version == 0 else [add(f"f{version}")]
        put_commit(store, version, CommitInfo({"inCommitTimestamp": time}), *first)
    return store


@pytest.mark.parametrize(("time", "version"), [(100, 0), (199, 0), (200, 1), (299, 1), (300, 2)])
@pytest.mark.parametrize("make", [at_times, with_own_times])
def test_the_latest_version_that_was_there(make: Callable[..., MemoryStore], time: int, version: int) -> None:
    assert version_at(make(100, 200, 300), time) == version


@pytest.mark.parametrize(("time", "words"), [(99, "earliest available version is 0"), (301, "latest version is 2")])
@pytest.mark.parametrize("make", [at_times, with_own_times])
def test_a_time_outside_the_log_is_refused(make: Callable[..., MemoryStore], time: int, words: str) -> None:
    with pytest.raises(VersionNotFound, match=words) as caught:
        version_at(make(100, 200, 300), time)
    assert caught.value.timestamp_ms == time


def test_times_that_people_cannot_read_are_refused_too() -> None:
    with pytest.raises(VersionNotFound, match=str(10**18)):
        version_at(at_times(100), 10**18)


@pytest.mark.parametrize(("time", "version"), [(500, 0), (501, 1), (502, 2), (503, 3), (600, 4)])
def test_file_times_are_made_increasing(time: int, version: int) -> None:
    assert version_at(at_times(500, 500, 100, 503, 600), time) == version


@pytest.mark.parametrize(("time", "version"), [(100, 0), (250, 1), (999, 1), (1000, 2), (1099, 2), (1100, 3)])
def test_own_times_count_from_the_version_that_switched_them_on(time: int, version: int) -> None:
    store = at_times(100, 200)
    store.disk.clock_ms = lambda: 150
    more = {"delta.inCommitTimestampEnablementVersion": "2", "delta.inCommitTimestampEnablementTimestamp": "1000"}
    put_commit(store, 2, CommitInfo({"inCommitTimestamp": 1000}), TIMED, replace(METADATA, configuration={**ENABLED, **more}))
    put_commit(store, 3, CommitInfo({"inCommitTimestamp": 1100}), add("f3"))
    assert version_at(store, time) == version


def test_timestamps_grow_while_they_are_on() -> None:
    """The commit that switches timestamps on again is not compared with what its predecessor carries; the ones after it have to grow."""
    store = with_own_times(1000)
    off = replace(METADATA, configuration={})
    put_commit(store, 1, CommitInfo({"inCommitTimestamp": 5000}), off)
    more = {"delta.inCommitTimestampEnablementVersion": "2", "delta.inCommitTimestampEnablementTimestamp": "2000"}
    put_commit(store, 2, CommitInfo({"inCommitTimestamp": 2000}), replace(METADATA, configuration={**ENABLED, **more}))
    before = Snapshot.load(store, version=1)
    assert Snapshot.load(store).timestamp_ms == before.refresh(store).timestamp_ms == 2000
    found: list[Finding] = []
    examine_log(store, found.append)
    assert not found
    put_commit(store, 3, CommitInfo({"inCommitTimestamp": 2000}), add("f"))
    with pytest.raises(CorruptLogFile, match="2000, not later than its predecessor's, 2000"):
        Snapshot.load(store).require_order()
    Snapshot.load(store, version=2).require_order()
    examine_log(store, found.append)
    assert [each.about for each in found] == [commit_path(3)]


def test_a_cleaned_log_starts_at_the_first_version_that_can_be_rebuilt() -> None:
    store = with_own_times(*range(100, 1100, 100))
    write_checkpoint(store, Snapshot.load(store, version=4))
    for version in (0, 1):
        store.delete(commit_path(version))
    assert version_at(store, 500) == 4
    assert version_at(store, 1000) == 9
    with pytest.raises(VersionNotFound, match="earliest available version is 4"):
        version_at(store, 450)


def test_a_checkpoint_alone_has_no_time() -> None:
    store = counted(2)
    write_checkpoint(store, Snapshot.load(store))
    for version in (0, 1):
        store.delete(commit_path(version))
    with pytest.raises(VersionNotFound, match="no commit"):
        version_at(store, 1)


def test_a_search_reads_few_commits() -> None:
    store = with_own_times(*range(0, 100_000, 100))
    write_checkpoint(store, Snapshot.load(store))
    store.disk.calls.clear()
    assert version_at(store, 12_345) == 123
    assert sum(verb == "get" for verb, _ in store.disk.calls) < 20


def test_a_commit_without_its_time_is_corrupt() -> None:
    store = with_own_times(100, 200)
    put_commit(store, 1, add("x"))
    with pytest.raises(CorruptLogFile, match=f"{commit_path(1)} has no in-commit timestamp"):
        version_at(store, 150)


def test_no_table_has_no_times() -> None:
    with pytest.raises(TableNotFound):
        version_at(new_store(), 1)


def test_single_commits_are_read_as_they_are() -> None:
    store = counted(4)
    assert read_commit(store, 2) == store.get(commit_path(2))
    store.delete(commit_path(0))
    with pytest.raises(VersionNotFound, match="the log has the commits of versions 1 to 3") as caught:
        read_commit(store, 0)
    assert (caught.value.earliest, caught.value.latest) == (1, 3)
    with pytest.raises(VersionNotFound, match="version 4 of"):
        read_commit(store, 4)
    store.delete(commit_path(2))
    with pytest.raises(LogGap, match="version 2 of"):
        read_commit(store, 2)
    with pytest.raises(VersionNotFound, match="the log has no commit"):
        read_commit(new_store(), 0)


def test_what_a_commit_says_about_itself() -> None:
    store = counted(2)
    assert commit_info(store, 1) is None
    for version, position in ((2, 0), (3, 1)):
        info = CommitInfo({"operation": "WRITE", "long": "x" * (version * 40_000)})
        actions = [add("f")]
        put_commit(store, version, *actions[:position], info, *actions[position:])
        assert commit_info(store, version) == info
    put_commit(store, 4, CommitInfo({"a": 1}))
    assert commit_info(store, 4) == CommitInfo({"a": 1})
    with pytest.raises(VersionNotFound):
        commit_info(store, 5)
    store.put(checkpoint_path(9), b"")
    with pytest.raises(VersionNotFound, match="versions 0 to 4"):
        commit_info(store, 9)
