"""Every way to a version of a table leads to the same state; and the version that was there at a time."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Protocol,
    RemoveFile,
    Txn,
    UnknownAction,
    encode_all,
)
from sluice.storage.actions.filetable import FILES_SCHEMA, TOMBSTONES_SCHEMA, LayeredTable, add_rows, adds_of, rows_at
from sluice.storage.errors import CorruptLogFile, InvalidRequest, LogGap, MissingObject, TableNotFound, UnsupportedFeature, VersionNotFound
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.examination import Finding, examine_log, reporter
from sluice.storage.log.paths import checkpoint_path, commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.log.timetravel import commit_info, read_commit, version_at
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import (
    EXTRA,
    METADATA,
    PROTOCOL,
    START,
    VALUES,
    VECTORS,
    add,
    commit_sequences,
    compacted_path,
    counted,
    model,
    new_store,
    paths,
    put_commit,
    remove,
    removed_files,
    store_of,
)
from tests.storage.strategies import examples


def state(snapshot: Snapshot) -> dict[str, object]:
    """Everything a snapshot says, in plain dicts."""
    return {
        "files": {each.key: each for each in snapshot.add_files()},
        "tombstones": {each.key: each for each in removed_files(snapshot)},
        "txns": dict(snapshot.app_transactions),
        "domains": dict(snapshot.domains),
        "last": {type(snapshot.protocol): snapshot.protocol, type(snapshot.metadata): snapshot.metadata},
    }


@examples(60)
@given(commit_sequences(), st.integers(0, 8), st.booleans())
def test_every_way_to_a_version_leads_to_the_same_state(history: list[list[Action]], middle: int, look: bool) -> None:
    store = store_of(history)
    last = len(history) - 1
    expected = model(history)

    loaded = Snapshot.load(store)
    assert loaded.version == last
    assert state(loaded) == expected

    advanced = Snapshot.load(store, version=0)
    for version, actions in enumerate(history[1:], start=1):
        before = state(advanced) if look else None
        following = advanced.advance([(version, actions)])
        assert not look or state(advanced) == before, "advancing must not change what it starts from"
        advanced = following
    assert state(advanced) == expected
    assert state(Snapshot.load(store, version=0).advance(list(enumerate(history))[1:])) == expected
    assert state(Snapshot.load(store, version=0).refresh(store)) == expected

    at = min(middle, last)
    write_checkpoint(store, Snapshot.load(store, version=at), now_ms=0)
    assert state(Snapshot.load(store, version=at)) == model(history[: at + 1])
    for version in range(at):
        store.delete(commit_path(version))
    from_checkpoint = Snapshot.load(store)
    assert state(from_checkpoint) == expected
    assert from_checkpoint.num_files == len(expected["files"])
    assert from_checkpoint.size_bytes == sum(each.size for each in expected["files"].values() if isinstance(each, AddFile))


@pytest.mark.notices("compactions-are-reconciled")
@pytest.mark.parametrize(
    "lines",
    [
        [add("f1"), remove("f1")],
        [remove("f1"), add("f1"), add("f2")],
        [add("f1"), add("f1", size=7)],
        [Txn("a", 2), Txn("a", 1)],
        [DomainMetadata("d", "new", False), DomainMetadata("d", "old", False)],
        [replace(METADATA, name="new"), replace(METADATA, name="old")],
        [Protocol(1, 2), Protocol(3, 7, ("somethingNew",), ("somethingNew",))],
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_compacted_file_with_one_key_twice_counts_for_nothing(lines: list[Action], turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not reconciled, so the order of its lines says nothing: the commits it stands for are read."""
    monkeypatch.setattr("sluice.storage.log.segment._COMPACTED_MIN", 2)
    store = store_of([[*START, add("f0")], [add("f1")], [remove("f1"), add("f2"), Txn("a", 3)]])
    expected = state(Snapshot.load(store))
    store.put(compacted_path(1, 2), encode_all(lines[::-1] if turned else lines))
    assert state(Snapshot.load(store)) == expected
    assert paths(Snapshot.load(store)) == ["f0", "f2"]


def test_a_compacted_file_gives_what_its_commits_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.storage.log.segment._COMPACTED_MIN", 2)
    monkeypatch.setattr("sluice.storage.log.replay._COMPARED", 2)
    store = store_of([[*START, add("a")], [add("b"), Txn("x", 1)], [remove("a"), CommitInfo({"timestamp": 5})]])
    put_commit(store, 3, add("c"), CommitInfo({"inCommitTimestamp": 9}))
    before = Snapshot.load(store)
    store.put(
        compacted_path(1, 3), store.get(commit_path(1)) + store.get(commit_path(2)).splitlines()[0] + b"\n" + store.get(commit_path(3))
    )
    store.disk.calls.clear()
    after = Snapshot.load(store)
    assert ("get", commit_path(2)) not in store.disk.calls
    assert state(after) == state(before)
    assert paths(after) == ["b", "c"]


ADDS = st.lists(
    st.builds(
        AddFile, st.text("ab", min_size=1, max_size=3), VALUES, st.integers(0, 99), st.integers(0, 99), st.booleans(),
        st.none() | st.just("{}"), st.none() | VALUES, st.none() | VECTORS, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9),
        st.none() | st.just("c"), EXTRA,
    ),
    max_size=5,
    unique_by=lambda each: each.path,
)  # fmt: skip


@examples(60)
@given(ADDS)
def test_the_files_table_holds_whole_records(adds: list[AddFile]) -> None:
    snapshot = Snapshot.load(store_of([[*START, *adds]]))
    assert snapshot.files.schema == FILES_SCHEMA
    assert snapshot.tombstones.schema == TOMBSTONES_SCHEMA
    assert list(snapshot.add_files()) == adds
    chosen = list(range(len(adds)))[::2]
    assert list(adds_of(rows_at(snapshot.files, chosen))) == [adds[index] for index in chosen]


def test_a_deletion_vector_makes_another_file_of_the_same_path() -> None:
    one, two = DeletionVector("u", "v", 4, 1, 1), DeletionVector("u", "v", 4, 2, 99)
    history: list[list[Action]] = [[*START, add("f"), add("g")], [remove("f"), add("f", deletion_vector=one)]]
    history.append([remove("f", deletion_vector=one), add("f", deletion_vector=two)])
    snapshot = Snapshot.load(store_of(history))
    assert sorted((each.path, each.deletion_vector) for each in snapshot.add_files() if each.path == "f") == [("f", two)]
    assert {each.key for each in removed_files(snapshot)} == {("f", ""), ("f", one.unique_id)}
    # A remove without the vector is about another logical file.
    assert snapshot.advance([(3, [remove("f")])]).num_files == 2
    assert paths(snapshot.advance([(3, [remove("f", deletion_vector=two)])])) == ["g"]


def test_row_changes_and_unknown_actions_do_not_disturb() -> None:
    store = counted(2)
    store.put(
        commit_path(2),
        b'{"cdc":{"path":"_change_data/x","partitionValues":{},"size":1,"dataChange":false}}\n{"new":{"path":"f0"}}\n{"add":{"path":"f2",'
        b'"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"newer":7}}\n',
    )
    snapshot = Snapshot.load(store)
    assert paths(snapshot) == ["f0", "f1", "f2"]
    assert [each.extra for each in snapshot.add_files()][-1] == {"newer": 7}


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda _: b"", lambda data: data.replace(b"{", b"[", 1), lambda data: data + b'{"add']
)
def test_a_damaged_commit_is_named_and_never_skipped(damage: Callable[[bytes], bytes]) -> None:
    store = counted(5)
    store.put(commit_path(3), damage(store.get(commit_path(3))))
    for version in (None, 3):
        with pytest.raises(CorruptLogFile, match=commit_path(3)):
            Snapshot.load(store, version=version)
    with pytest.raises(CorruptLogFile, match=commit_path(3)):
        Snapshot.load(store, version=2).refresh(store)
    assert Snapshot.load(store, version=2).num_files == 3


@pytest.mark.parametrize(("kept", "lacking"), [((PROTOCOL,), "metaData"), ((METADATA,), "protocol"), ((), "protocol")])
def test_a_log_without_its_first_actions_is_corrupt(kept: Sequence[Action], lacking: str) -> None:
    with pytest.raises(CorruptLogFile, match=f"no {lacking} action.*; ask the engine that wrote it"):
        Snapshot.load(store_of([[*kept, add("f")]]))


@pytest.mark.parametrize("versions", [[0], [2], [1, 3], [2, 1], [1, 1]])
def test_commits_must_follow(versions: list[int]) -> None:
    snapshot = Snapshot.load(counted(1))
    with pytest.raises(InvalidRequest, match="do not follow version 0"):
        snapshot.advance([(version, [add("x")]) for version in versions])


def test_advancing_by_nothing_changes_nothing_and_files_are_put_together_once() -> None:
    snapshot = Snapshot.load(counted(2)).advance([(2, [add("x"), remove("f0")])])
    assert snapshot.advance([]) is snapshot
    assert snapshot.files is snapshot.files
    assert snapshot.tombstones is snapshot.tombstones


def test_the_commit_info_is_that_of_the_last_commit() -> None:
    info = CommitInfo({"operation": "WRITE"})
    snapshot = Snapshot.load(counted(1)).advance([(1, [info, add("x")])])
    assert snapshot.commit_info == info
    assert snapshot.advance([(2, [add("y")])]).commit_info is None


def test_many_small_changes_are_merged_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.storage.actions.filetable._PENDING_MAX", 10)
    monkeypatch.setattr("sluice.storage.actions.filetable._CHUNK_ROWS_MAX", 8)
    changes: list[list[Action]] = [[add(f"f{number}"), *([remove(f"f{number - 7}")] if number >= 7 else [])] for number in range(60)]
    history = [list(START), *changes]
    snapshot = Snapshot.load(store_of(history[:1])).advance(list(enumerate(history))[1:])
    assert paths(snapshot) == sorted(f"f{number}" for number in range(53, 60))
    step = Snapshot.load(store_of(history[:1]))
    for version, commit in enumerate(history[1:], start=1):
        step = step.advance([(version, commit)])
    assert state(step) == state(snapshot)
    assert snapshot.files.column("path").num_chunks <= 3


def test_untouched_chunks_are_shared() -> None:
    rows = add_rows([add(f"f{number}") for number in range(20_000)])
    table: LayeredTable[AddFile] = LayeredTable(rows, add_rows)
    changed = table.apply({("f19999", ""): None, ("new", ""): add("new")})
    buffers = [changed.table.column("size").chunk(0).buffers()[1].address, rows.column("size").chunk(0).buffers()[1].address]
    assert buffers[0] == buffers[1]
    assert (table.table.num_rows, changed.table.num_rows) == (20_000, 20_000)


def test_the_time_of_a_version() -> None:
    store = new_store()
    store.disk.clock_ms = lambda: 5_000
    put_commit(store, 0, *START)
    put_commit(store, 1, CommitInfo({"timestamp": 77}), add("f"))
    assert Snapshot.load(store).timestamp_ms == 5_000
    base = Snapshot.load(store, version=0)
    assert base.advance([(1, [CommitInfo({"timestamp": 77})])]).timestamp_ms == 77
    assert base.advance([(1, [CommitInfo({"timestamp": 77})])], modified_ms={1: 6_000}).timestamp_ms == 6_000
    assert base.advance([(1, [add("f")])]).timestamp_ms == 5_000
    store.disk.clock_ms = lambda: 9_000
    put_commit(
        store,
        2,
        CommitInfo({"inCommitTimestamp": 8_000}),
        Protocol(1, 7, None, ("inCommitTimestamp",)),
        replace(METADATA, configuration={"delta.enableInCommitTimestamps": "true"}),
    )
    assert Snapshot.load(store).timestamp_ms == 8_000
    assert base.refresh(store).timestamp_ms == 8_000
    write_checkpoint(store, Snapshot.load(store))
    assert Snapshot.load(store).timestamp_ms == 8_000
    store.delete(commit_path(2))
    assert Snapshot.load(store).timestamp_ms == 9_000, "without the commit file the checkpoint's time is the best there is"


def test_refresh_reads_only_what_is_new() -> None:
    store = counted(4)
    snapshot = Snapshot.load(store)
    put_commit(store, 4, add("f4"))
    store.disk.calls.clear()
    assert paths(snapshot.refresh(store)) == ["f0", "f1", "f2", "f3", "f4"]
    assert store.disk.calls == [("list", "_delta_log/"), ("get", commit_path(4))]
    assert snapshot.version == 3
    put_commit(store, 6, add("f6"))
    with pytest.raises(LogGap, match="version 5"):
        snapshot.refresh(store)


def test_refresh_passes_a_cleanup_by_way_of_the_checkpoint() -> None:
    store = counted(9)
    old = Snapshot.load(store, version=2)
    write_checkpoint(store, Snapshot.load(store, version=6))
    for version in range(6):
        store.delete(commit_path(version))
    assert paths(old.refresh(store)) == [f"f{number}" for number in range(9)]


def test_a_cleanup_while_loading_is_survived() -> None:
    store = counted(9)
    latest = Snapshot.load(store)
    write_checkpoint(store, Snapshot.load(store, version=3))

    def clean() -> None:
        write_checkpoint(store, latest)
        for version in range(8):
            store.disk.objects.pop(commit_path(version))
        store.disk.objects.pop(checkpoint_path(3))

    store.disk.slow("get", clean, checkpoint_path(3))
    assert paths(Snapshot.load(store)) == [f"f{number}" for number in range(9)]


def test_a_log_file_that_is_listed_but_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    store = counted(3)
    listed = list(store.list_from("_delta_log/"))
    store.delete(commit_path(1))
    monkeypatch.setattr(MemoryStore, "list_from", lambda *_args, **_more: iter(listed))
    with pytest.raises(MissingObject, match=commit_path(1)):
        Snapshot.load(store)


def test_a_feature_that_readers_need_is_refused_when_it_comes() -> None:
    store = counted(2)
    snapshot = Snapshot.load(store)
    protocol = Protocol(3, 7, ("variantShredding",), ("variantShredding",))
    put_commit(store, 2, protocol)
    looks: list[Callable[[], Snapshot]] = [partial(Snapshot.load, store), partial(snapshot.refresh, store)]
    looks.append(partial(snapshot.advance, [(2, [protocol])]))
    for look in looks:
        with pytest.raises(UnsupportedFeature, match="variantShredding"):
            look()
    assert Snapshot.load(store, version=1).num_files == 2


def test_domains_and_transactions() -> None:
    history: list[list[Action]] = [[*START, Txn("a", 5), DomainMetadata("d", "1", False), DomainMetadata("e", "1", False)]]
    history.append([Txn("a", 3, 7), Txn("b", 1), DomainMetadata("d", "2", True)])
    snapshot = Snapshot.load(store_of(history))
    assert snapshot.app_transactions == {"a": Txn("a", 3, 7), "b": Txn("b", 1)}, "the newest counts, not the highest"
    assert snapshot.domains == {"e": DomainMetadata("e", "1", False)}
    again = snapshot.advance([(2, [DomainMetadata("d", "3", False)])])
    assert set(again.domains) == {"d", "e"}


def test_snapshots_travel_between_processes() -> None:
    snapshot = Snapshot.load(counted(3)).advance([(3, [add("x"), UnknownAction("new", 1), RemoveFile("f0", True)])])
    copy = pickle.loads(pickle.dumps(snapshot))
    assert (copy.version, state(copy)) == (3, state(snapshot))
    assert repr(copy).endswith("version=3)")


def test_rows_are_picked_from_tables_whose_texts_are_larger_than_two_gib() -> None:
    """The batches share one text, so that the table takes no room; `Table.take` fails, for it would join them first."""
    batch = pa.array(["x" * 2000 + str(number) for number in range(1000)])
    files = pa.table({"path": pa.chunked_array([batch] * 1200)})
    with pytest.raises(pa.ArrowInvalid):
        files.take(pa.array([5, 1_100_003]))
    assert [path.lstrip("x") for path in rows_at(files, [1_100_003, 5, 7]).column("path").to_pylist()] == ["3", "5", "7"]


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


@pytest.mark.parametrize(
    ("time", "words"), [(99, "earliest available version is 0"), (301, "latest version is 2"), (10**18, f"{10**18} ms: its latest version")]
)
@pytest.mark.parametrize("make", [at_times, with_own_times])
def test_a_time_outside_the_log_is_refused(make: Callable[..., MemoryStore], time: int, words: str) -> None:
    with pytest.raises(VersionNotFound, match=words) as caught:
        version_at(make(100, 200, 300), time)
    assert caught.value.timestamp_ms == time


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
    examine_log(store, reporter(found))
    assert not found
    put_commit(store, 3, CommitInfo({"inCommitTimestamp": 2000}), add("f"))
    with pytest.raises(CorruptLogFile, match="2000, not later than its predecessor's, 2000"):
        Snapshot.load(store).require_order()
    Snapshot.load(store, version=2).require_order()
    examine_log(store, reporter(found))
    assert [each.about for each in found] == [commit_path(3)]


def test_what_a_damaged_commit_says_before_the_damage_counts_for_later_ones() -> None:
    store = with_own_times(1000)
    put_commit(store, 1, CommitInfo({"inCommitTimestamp": 2000}), replace(METADATA, configuration={}), add("f1"))
    store.put(commit_path(1), store.get(commit_path(1))[:-9])
    put_commit(store, 2, add("f2"))  # timestamps are off since version 1
    found: list[Finding] = []
    examine_log(store, reporter(found))
    assert [each.about for each in found] == [commit_path(1)]


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
