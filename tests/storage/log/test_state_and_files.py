"""A table's state and its list of files are two things: what is read of a checkpoint, how often, and what happens when it is gone."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.actions import AddFile, CommitInfo, DomainMetadata, Txn, codec, encode_all, texts
from sluice.storage.actions.filetable import LayeredTable, add_rows
from sluice.storage.constants import SIDECAR_FOLDER
from sluice.storage.errors import CorruptLogFile, MissingObject
from sluice.storage.jsontext import loads
from sluice.storage.log import replay
from sluice.storage.log.checkpoint_writer import CHECKPOINT_SCHEMA, write_checkpoint
from sluice.storage.log.paths import checkpoint_path, commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores import s3
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import ObjectStore
from tests.storage.logs import METADATA, PROTOCOL, START, add, new_store, paths, put_commit, remove, removed_files, store_of

FILES = 20_000


class Counting(MemoryStore):
    """A store that counts the bytes of checkpoints that are read."""

    read: dict[str, int]

    @staticmethod
    def over(store: MemoryStore) -> Counting:
        counting = Counting(store.location)
        counting.read = {}
        return counting

    def _count(self, key: str, data: bytes) -> bytes:
        if "checkpoint" in key or "_sidecars" in key:
            self.read[key] = self.read.get(key, 0) + len(data)
        return data

    def get(self, key: str) -> bytes:
        return self._count(key, super().get(key))

    def open_input(self, key: str) -> BinaryIO:
        counting, data = self, super().get(key)

        class Stream(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                return counting._count(key, super().read(size))

        return cast("BinaryIO", Stream(data))


@pytest.fixture(autouse=True)
def _no_checkpoint_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_WHOLE_BYTES", 0)


def stats(n: int) -> str:
    """Statistics that do not compress well."""
    return f'{{"numRecords":{n},"minValues":{{"id":"{sha256(str(n).encode()).hexdigest()}"}}}}'


@cache
def beginning() -> Mapping[str, bytes]:
    """The log of a table of many files with a checkpoint of version 0: made once, since that takes longer than most tests of it."""
    files = [add(f"f{n}", stats=stats(n)) for n in range(FILES)]
    store = store_of([[*START, Txn("a", 5), DomainMetadata("d", "1", False), *files]])
    write_checkpoint(store, Snapshot.load(store))
    return {each.key: store.get(each.key) for each in store.list_from("", recursive=True)}


def big(*, versions: int = 1) -> tuple[Counting, int]:
    """A table of many files with a checkpoint of version 0, more commits after it, and the checkpoint's size."""
    store = new_store()
    for key, data in beginning().items():
        store.put(key, data)
    for version in range(1, versions):
        put_commit(store, version, add(f"new{version}"), remove(f"f{version}"), Txn("b", version))
    return Counting.over(store), store.head(checkpoint_path(0)).size


def rewritten(store: MemoryStore, change: Callable[[pa.Table], pa.Table] = lambda table: table, **how: Any) -> bytes:
    """The checkpoint of version 0 as another engine could write it, with other rows or settings."""
    sink = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(store.get(checkpoint_path(0))))), sink, **how)
    return sink.getvalue()


def test_the_state_is_read_without_the_files() -> None:
    store, size = big(versions=3)
    snapshot = Snapshot.load(store)
    assert (snapshot.version, snapshot.protocol, snapshot.metadata) == (2, PROTOCOL, METADATA)
    assert snapshot.app_transactions == {"a": Txn("a", 5), "b": Txn("b", 2)}
    assert set(snapshot.domains) == {"d"}
    put_commit(store, 3, add("new3"))
    assert snapshot.refresh(store).advance([(4, [add("new4")])]).version == 4
    assert sum(store.read.values()) < size / 10


@pytest.mark.slow
def test_the_files_are_read_once_however_many_snapshots_look() -> None:
    store, size = big(versions=3)
    snapshot = Snapshot.load(store)
    later = snapshot.advance([(3, [add("new3")])])
    assert later.num_files == FILES + 1
    assert (snapshot.num_files, snapshot.files is snapshot.files) == (FILES, True)
    assert snapshot.advance([(3, [add("x")])]).num_files == FILES + 1
    assert size * 0.8 < sum(store.read.values()) < size * 1.2


def test_tombstones_are_read_without_the_files() -> None:
    store, size = big(versions=3)
    assert Snapshot.load(store).tombstones.num_rows == 2
    assert sum(store.read.values()) < size / 10


def test_the_files_are_read_without_the_tombstones() -> None:
    store, size = big()
    names = [sha256(str(n).encode()).hexdigest() for n in range(FILES)]
    put_commit(store, 1, *(remove(each) for each in names))
    write_checkpoint(store, Snapshot.load(store), now_ms=1)
    store.read.clear()
    assert Snapshot.load(store).num_files == FILES
    assert store.read[checkpoint_path(1)] < store.head(checkpoint_path(1)).size - size / 2


@pytest.mark.slow
def test_many_changes_do_not_make_the_files_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.storage.actions.filetable._PENDING_MAX", 10)
    store, size = big()
    snapshot = Snapshot.load(store)
    for version in range(1, 60):
        snapshot = snapshot.advance([(version, [add(f"new{version}"), remove(f"f{version}"), remove(f"new{version - 3}")])])
    assert sum(store.read.values()) < size / 10
    assert paths(snapshot) == sorted([f"f{n}" for n in (0, *range(60, FILES))] + ["new57", "new58", "new59"])
    assert {each.path for each in removed_files(snapshot)} == {f"f{n}" for n in range(1, 60)} | {f"new{n}" for n in range(-2, 57)}


def test_a_row_group_of_files_and_state_together_is_read_without_the_files() -> None:
    """Some writers put everything into one row group."""
    store, _ = big()
    content = rewritten(
        store, lambda whole: pa.concat_tables([whole.slice(7), whole.slice(0, 7)]), row_group_size=10**6, compression="none"
    )
    store.put(checkpoint_path(0), content)
    store.read.clear()
    snapshot = Snapshot.load(store)
    assert (snapshot.protocol, snapshot.app_transactions) == (PROTOCOL, {"a": Txn("a", 5)})
    assert sum(store.read.values()) < len(content) / 10
    assert snapshot.num_files == FILES


def test_statistics_may_be_lacking() -> None:
    store, _ = big()
    store.put(checkpoint_path(0), rewritten(store, write_statistics=False))
    snapshot = Snapshot.load(store)
    assert (snapshot.metadata, snapshot.num_files) == (METADATA, FILES)


def v2(store: Counting) -> None:
    """The checkpoint of version 0 becomes a V2 checkpoint whose files are in a sidecar."""
    whole = pq.read_table(io.BytesIO(store.get(checkpoint_path(0))))
    store.delete(checkpoint_path(0))
    of_files = whole.filter(pa.compute.is_valid(whole["add"])).select(["add", "remove"])
    sink = io.BytesIO()
    pq.write_table(of_files, sink)
    store.put(SIDECAR_FOLDER + "s.parquet", sink.getvalue())
    kind = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])
    rows = whole.filter(pa.compute.is_null(whole["add"])).to_pylist(maps_as_pydicts="strict")
    rows.append({"sidecar": {"path": "s.parquet", "sizeInBytes": len(sink.getvalue()), "modificationTime": 1}})
    rows = [{name: body for name, body in row.items() if name != "add"} for row in rows]
    main = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, CHECKPOINT_SCHEMA.append(pa.field("sidecar", kind))), main)
    store.put(f"_delta_log/{0:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", main.getvalue())
    store.read.clear()


@pytest.mark.slow
def test_sidecars_are_read_once_and_not_for_the_state() -> None:
    store, _ = big(versions=2)
    v2(store)
    snapshot = Snapshot.load(store)
    assert snapshot.app_transactions == {"a": Txn("a", 5), "b": Txn("b", 1)}
    assert SIDECAR_FOLDER + "s.parquet" not in store.read
    assert snapshot.num_files == snapshot.advance([(2, [add("x")])]).num_files - 1 == FILES
    assert store.read[SIDECAR_FOLDER + "s.parquet"] <= store.head(SIDECAR_FOLDER + "s.parquet").size * 1.2


def cleaned_up(store: MemoryStore, upto: int) -> None:
    """What a cleanup of the log leaves when version `upto` has a checkpoint."""
    for version in range(upto):
        store.delete(commit_path(version))
        store.delete(checkpoint_path(version))


@pytest.mark.slow
@pytest.mark.parametrize("look_first", [False, True])
def test_a_snapshot_outlives_the_cleanup_of_its_checkpoint(look_first: bool) -> None:
    store, _ = big(versions=6)
    snapshot, expected = Snapshot.load(store), paths(Snapshot.load(store))
    gone = {each.path for each in removed_files(snapshot)} if look_first else None
    write_checkpoint(store, Snapshot.load(store, version=4))
    cleaned_up(store, 4)
    later = snapshot.advance([(6, [add("x"), remove("new4")])])
    assert paths(snapshot) == expected
    assert paths(later) == sorted({*expected, "x"} - {"new4"})
    assert gone is None or gone == {each.path for each in removed_files(snapshot)} == {f"f{n}" for n in range(1, 6)}


@pytest.mark.slow
def test_an_old_snapshot_whose_log_is_gone_says_so() -> None:
    store, _ = big(versions=6)
    old = Snapshot.load(store, version=2)
    write_checkpoint(store, Snapshot.load(store))
    cleaned_up(store, 5)
    with pytest.raises(MissingObject, match=r"version 2 of memory://.*checkpoint.parquet.*read a newer version"):
        _ = old.files
    assert old.metadata == METADATA


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"compression": "none"}, {"row_group_size": 700}, {"use_dictionary": False}], ids=str)
def test_a_checkpoint_that_another_engine_replaced_is_read_as_it_is_now(how: dict[str, Any]) -> None:
    store, _ = big(versions=2)
    snapshot, expected = Snapshot.load(store), paths(Snapshot.load(store))
    store.put(checkpoint_path(0), rewritten(store, **how))
    assert paths(snapshot) == expected


@pytest.mark.notices("lists-are-of-the-checkpoint-of-the-state")
def test_nor_does_one_of_the_same_size_go_with_the_state_of_another() -> None:
    store, _ = big(versions=2)
    content = rewritten(store, compression="none", use_dictionary=False)
    assert METADATA.id.encode() in content
    store.put(checkpoint_path(0), content)
    snapshot = Snapshot.load(MemoryStore(store.location))
    store.put(checkpoint_path(0), content.replace(METADATA.id.encode(), b"x" * len(METADATA.id)))
    with pytest.raises(MissingObject, match="version 1 of memory") as refused:
        _ = snapshot.files
    assert "another table" in "".join(refused.value.__cause__.__notes__ if refused.value.__cause__ else ())


@pytest.mark.notices("ranges-are-of-one-version")
def test_a_checkpoint_that_is_replaced_between_two_ranges_is_read_anew(s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = big(versions=2)
    expected = paths(Snapshot.load(store))
    for each in store.list_from("", recursive=True):
        s3_store.put(each.key, store.get(each.key))
    other = rewritten(store, lambda whole: whole.take(list(reversed(range(len(whole))))), compression="none")
    asked: list[str] = []
    send = s3.S3Store._call

    def replaces(self: s3.S3Store, verb: str, key: str, **parameters: Any) -> dict[str, Any]:
        if verb == "get_object" and key == checkpoint_path(0):
            asked.append(parameters["Range"])
            if len(asked) == 2:  # the footer is of the one, the columns of the other
                send(self, "put_object", key, Body=other)
        return send(self, verb, key, **parameters)

    snapshot = Snapshot.load(s3_store)
    monkeypatch.setattr(s3.S3Store, "_call", replaces)
    assert paths(snapshot) == expected
    assert len(asked) > 2, "it was replaced while it was read"


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_the_list_of_another_table_at_the_same_place_is_not_taken(with_checkpoint: bool) -> None:
    store, _ = big(versions=2)
    snapshot = Snapshot.load(store)
    cleaned_up(store, 2)
    put_commit(store, 0, PROTOCOL, replace(METADATA, id="another"), add("other0"))
    put_commit(store, 1, add("other1"))
    if with_checkpoint:
        write_checkpoint(store, Snapshot.load(store, version=0))
    with pytest.raises(MissingObject, match="version 1 of memory") as refused:
        _ = snapshot.files
    assert "another table" in "".join(refused.value.__cause__.__notes__ if refused.value.__cause__ else ())


def test_an_older_checkpoint_stands_in_with_the_commits_after_it() -> None:
    store, _ = big(versions=6)
    write_checkpoint(store, Snapshot.load(store, version=3))
    snapshot = Snapshot.load(store)
    store.delete(checkpoint_path(3))
    assert paths(snapshot) == paths(Snapshot.load(store))
    again = Snapshot.load(store)
    write_checkpoint(store, Snapshot.load(store))
    store.delete(checkpoint_path(0))
    assert paths(again) == paths(snapshot)


@pytest.mark.slow
def test_a_long_commit_is_not_decoded_for_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def counting(line: bytes) -> Any:
        decoded.append(line)
        return loads(line)

    monkeypatch.setattr(codec, "loads", counting)
    monkeypatch.setattr(texts, "PIECE_BYTES", 10_000)
    store, _ = big()
    changes = [each for n in range(1000) for each in (remove(f"f{n}"), add(f"new{n}", stats=stats(n)))]
    put_commit(store, 1, CommitInfo({"operation": "WRITE", "timestamp": 3}), *changes, Txn("b", 1))
    put_commit(store, 2, add("last"), remove("new0"))
    expected = sorted([*(f"f{n}" for n in range(1000, FILES)), *(f"new{n}" for n in range(1, 1000)), "last"])
    decoded.clear()
    snapshot = Snapshot.load(store).advance([(3, [add("x")])])
    assert snapshot.app_transactions["b"] == Txn("b", 1)
    assert len(decoded) < 10
    copy = pickle.loads(pickle.dumps(Snapshot.load(MemoryStore(store.location))))
    assert paths(snapshot) == sorted([*expected, "x"])
    assert paths(copy) == expected
    assert {each.path for each in removed_files(snapshot)} == {*(f"f{n}" for n in range(1000)), "new0"}
    assert 2000 < len(decoded) < 5000, "once for both lists of each snapshot"
    unseen = Snapshot.load(store).advance([(3, [remove("last")])])
    write_checkpoint(store, Snapshot.load(store))
    cleaned_up(store, 2)
    assert paths(unseen) == [each for each in expected if each != "last"]


def test_a_long_commit_may_spell_out_that_an_action_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PIECE_BYTES", 100)
    store = store_of([[*START, add("f")]])
    metadata = codec.encode(replace(METADATA, configuration={"a": "b"}))
    store.put(commit_path(1), b'{"add":null,"remove":null,' + metadata[1:] + b"\n" + encode_all([add(f"g{n}") for n in range(20)]))
    assert Snapshot.load(store).configuration == {"a": "b"}


def test_a_long_commit_that_is_cut_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PIECE_BYTES", 10_000)
    store, _ = big()
    data = encode_all([add(f"new{n}", stats=stats(n)) for n in range(1000)])
    store.put(commit_path(1), data[:-30])
    with pytest.raises(CorruptLogFile, match="truncated"):
        Snapshot.load(store)


@pytest.mark.slow
def test_a_snapshot_that_nobody_looked_at_travels() -> None:
    store, _ = big(versions=3)
    snapshot = Snapshot.load(MemoryStore.open(store.location.removeprefix("memory://")))
    copy = pickle.loads(pickle.dumps(snapshot))
    assert (copy.num_files, copy.tombstones.num_rows) == (FILES, 2)
    assert pickle.loads(pickle.dumps(copy)).num_files == FILES


@pytest.mark.slow
def test_damage_in_the_list_shows_when_it_is_read() -> None:
    store, _ = big()
    data = store.get(checkpoint_path(0))
    at = data.index(b"f10000")
    store.put(checkpoint_path(0), data[:at] + b"\xff" * 400 + data[at + 400 :])
    snapshot = Snapshot.load(store)
    for _ in range(2):
        with pytest.raises(CorruptLogFile, match=checkpoint_path(0)):
            _ = snapshot.files


def test_the_same_changes_to_another_table() -> None:
    rows: dict[tuple[str, str], Any] = {("a", ""): None, ("c", ""): add("c")}
    first: LayeredTable[AddFile] = LayeredTable(add_rows([add("a"), add("b")]), add_rows)
    second: LayeredTable[AddFile] = LayeredTable(add_rows([add("b"), add("c"), add("d")]), add_rows)
    unread = LayeredTable(first, add_rows).apply(rows)
    assert sorted(unread.on(second).table["path"].to_pylist()) == ["b", "c", "d"]
    assert sorted(unread.table["path"].to_pylist()) == ["b", "c"]
    assert unread.on(second) is unread, "it was read"
