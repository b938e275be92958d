"""What calls return fits into Python: Arrow streams, DataFrames, datasets, times, notebooks, pickles, counts.

The files of one version's changes: their order, and how a large version is cut into pieces.
Changes against other engines, against the rows of versions, and copies that cancel each other.
What the history tells of transactions that others came before, and of commits that say less.
"""

from __future__ import annotations

import os
import pickle
import random
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from os import sep
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sluice
from sluice.storage.actions import Action, AddCDCFile, AddFile, CommitInfo, RemoveFile, encode_all
from sluice.storage.log.paths import commit_path
from sluice.tables.read import table_snapshot
from sluice.tables.read.changes import without_copies
from sluice.tables.read.versions import ALL, ChangedFiles
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.read.test_changes import VECTORS, Made, told

SCHEMA = pa.schema([pa.field("day", pa.int32()), pa.field("name", pa.string()), pa.field("amount", pa.int64())])


def rows(day: int | None, *amounts: int | None) -> pa.Table:
    return pa.Table.from_pylist([{"day": day, "name": f"<{amount}>", "amount": amount} for amount in amounts], SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> sluice.Table:
    """Three partitions, one of them null; rows of two files are deleted by deletion vectors."""
    made = sluice.Table.create(
        tmp_path / "t",
        SCHEMA,
        partition_by=["day"],
        properties={"delta.enableDeletionVectors": "true"},
        coordinator=f"memory://{tmp_path.name}",
    )
    made.append(rows(1, 1, 2, 3))
    made.append(rows(2, 4, None))
    made.append(rows(None, 5, 6))
    made.delete("amount IN (2, 5)")
    return made


def in_order(found: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(found[name].to_pylist() for name in ("day", "name", "amount")), strict=True), key=repr)


def test_a_snapshot_is_an_arrow_stream(table: sluice.Table) -> None:
    snapshot = table.snapshot()
    assert in_order(pa.table(snapshot)) == in_order(snapshot.to_arrow())
    assert pa.RecordBatchReader.from_stream(snapshot).schema == snapshot.schema
    assert pl.DataFrame(snapshot).height == snapshot.num_rows == 5


def test_data_frames_have_the_rows_of_to_arrow(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = table.snapshot()
    assert snapshot.to_polars(["amount"], "day = 1").to_dict(as_series=False) == {"amount": [1, 3]}
    monkeypatch.setattr(table_snapshot, "find_spec", lambda _: None)
    with pytest.raises(sluice.errors.InvalidRequest, match="pip install pandas"):
        snapshot.to_pandas()
    with pytest.raises(sluice.errors.InvalidRequest, match="pip install polars"):
        snapshot.to_polars()


def test_pandas_has_the_rows(table: sluice.Table) -> None:
    pytest.importorskip("pandas", reason="make test-connect has it")
    frame = table.snapshot().to_pandas(["amount"], "day = 1")
    assert frame["amount"].tolist() == [1, 3]


def test_rows_are_counted_without_reading_data(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise AssertionError("a data file was opened")

    snapshot = table.snapshot()
    monkeypatch.setattr(type(table.access.store), "open_input", refuse)
    assert snapshot.num_rows == 5


def test_files_without_statistics_are_counted(tmp_path: Path) -> None:
    table = sluice.Table.create(tmp_path / "t", SCHEMA, properties={"delta.enableDeletionVectors": "true"}, coordinator="memory://counted")
    table.append(rows(1, 1, 2, 3))
    table.delete("amount = 2")
    files = table.snapshot().raw.files
    snapshot = table.snapshot()
    without = files.set_column(files.schema.get_field_index("stats"), "stats", pa.nulls(files.num_rows, pa.string()))
    object.__setattr__(snapshot, "raw", _WithFiles(snapshot.raw, without))
    assert snapshot.num_rows == 2


class _WithFiles:
    """A snapshot with other files."""

    def __init__(self, raw: object, files: pa.Table) -> None:
        self._raw, self.files = raw, files

    def __getattr__(self, name: str) -> object:
        return getattr(self._raw, name)


def test_a_dataset_has_the_rows_and_skips_partitions(table: sluice.Table) -> None:
    dataset = table.snapshot().to_dataset()
    assert in_order(dataset.to_table()) == in_order(table.snapshot().to_arrow())
    assert dataset.to_table(["amount"], filter=pc.field("day") == 2)["amount"].to_pylist() == [4, None]
    assert dataset.count_rows(filter=pc.field("day").is_null()) == 1
    table.compact("major")
    whole = table.refresh().snapshot().to_dataset()
    assert in_order(whole.to_table()) == in_order(table.snapshot().to_arrow())
    assert len(list(whole.get_fragments(pc.field("day") == 1))) == 1  # the condition leaves the other partitions out
    assert pl.scan_pyarrow_dataset(whole).filter(pl.col("amount") > 3).select("amount").collect()["amount"].sort().to_list() == [4, 6]


def test_a_dataset_of_a_missing_file_says_so(table: sluice.Table) -> None:
    table.compact("major")
    dataset = table.refresh().snapshot().to_dataset()
    for path in Path(table.location.removeprefix("file://")).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        dataset.to_table()


def test_times_are_given_in_three_ways(table: sluice.Table) -> None:
    entry = table.history()[1]
    assert entry.time == table.snapshot(entry.version).time == datetime.fromtimestamp(entry.timestamp / 1000, timezone.utc)
    zoned = entry.time.astimezone(timezone(timedelta(hours=5)))
    for moment in (entry.timestamp, entry.time, zoned, zoned.isoformat(), entry.time.isoformat().replace("+00:00", "Z")):
        assert table.snapshot(timestamp=moment).version == entry.version
        assert table.changes(moment, by="timestamp").num_rows == table.changes(entry.version).num_rows
    assert table.snapshot(timestamp=entry.time.replace(tzinfo=None)).version == entry.version  # without a zone: UTC
    assert table.restore(timestamp=entry.time) is not None
    assert table.history(1)[0].parameters["timestamp"].startswith(entry.time.isoformat(timespec="seconds")[:19])


def test_commits_say_how_many_rows_they_changed(table: sluice.Table) -> None:
    appended, deleted = table.append(rows(3, 7, 8)), table.delete("amount > 6")
    updated = present(table.update({"amount": "0"}, "amount = 1"))
    assert appended is not None
    assert deleted is not None
    assert appended.metrics["numOutputRows"] == 2
    assert deleted.metrics["numDeletedRows"] == 2
    assert updated.metrics["numUpdatedRows"] == 1
    assert appended.time == table.snapshot(appended.version).time
    [newest] = table.history(1)
    assert {name: int(value) for name, value in newest.metrics.items()} == updated.metrics
    joint = sluice.transaction(coordinator=table.access.address.coordinator)
    joint[table].delete("amount = 3")
    assert joint.commit()[table].metrics["numDeletedRows"] == 1


def test_a_repeated_write_does_not_count_rows_again(table: sluice.Table) -> None:
    first, second = (table.append(rows(4, 9), key="once") for _ in range(2))
    assert first is not None
    assert second is not None
    assert second.repeated
    assert (first.metrics["numOutputRows"], second.metrics) == (1, {})


def test_a_pickled_table_opens_the_same_table(table: sluice.Table) -> None:
    again = pickle.loads(pickle.dumps(table))
    assert (again.location, again.version) == (table.location, table.version)
    assert again.append(rows(5, 10)) is not None
    assert table.refresh().version == again.version


def test_a_table_read_without_a_coordinator_stays_so(table: sluice.Table) -> None:
    read_only = pickle.loads(pickle.dumps(sluice.Table.open(table.location, consistency="published")))
    assert read_only.snapshot().num_rows == 5
    with pytest.raises(sluice.errors.InvalidRequest, match="consistency='published'"):
        read_only.append(rows(1, 1))


def test_notebooks_show_tables(table: sluice.Table) -> None:
    commit = present(table.append(rows(1, 11), user_metadata="<script>"))
    shown = [each._repr_html_() for each in (table, table.snapshot(), commit, table.history(), table.history()[0])]
    assert all("<table>" in text for text in shown)
    assert not any("<script>" in text for text in shown)
    assert "&lt;script&gt;" in shown[3]
    assert table.location in shown[0]
    assert "numOutputRows: 1" in shown[2]
    assert shown[3].count("<tr>") == 1 + len(table.history())


def frames_of_ours(call: Callable[[], object]) -> int:
    with pytest.raises(sluice.errors.SluiceError) as refused:
        call()
    shown = traceback.format_exception(refused.value)
    return sum(f"{sep}src{sep}sluice{sep}" in line for line in shown)


def test_tracebacks_of_refused_calls_show_the_call(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = pa.table({"amount": ["text"]})
    calls: list[Callable[[], object]] = [
        lambda: table.append(wrong),
        lambda: table.snapshot(99),
        lambda: table.delete("nothing = 1"),
        lambda: table.append(rows(1, 1), if_version=0),
        lambda: sluice.Table.open(f"{table.location}/none", coordinator=table.access.address.coordinator),
    ]
    assert all(frames_of_ours(call) > 3 for call in calls[:4])
    monkeypatch.delenv("SLUICE_TRACEBACKS")
    assert all(1 <= frames_of_ours(call) <= 3 for call in calls)


def test_tracebacks_of_damage_keep_their_frames(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.compact("major")
    for path in Path(table.location.removeprefix("file://")).rglob("*.parquet"):
        path.unlink()
    monkeypatch.delenv("SLUICE_TRACEBACKS")
    snapshot = table.refresh().snapshot()
    assert frames_of_ours(snapshot.to_arrow) > 3


WRITTEN = CommitInfo({"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}})


def added(path: str, size: int = 10, *, change: bool = True) -> AddFile:
    return AddFile(path, {}, size, 0, data_change=change)


def removed(path: str, size: int | None = 10, *, change: bool = True) -> RemoveFile:
    return RemoveFile(path, data_change=change, size=size, partition_values={})


def names(files: ChangedFiles) -> list[str]:
    return [each.path for each in files]


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([added("a"), removed("b"), added("c", change=False), removed("d")], ["b", "d", "a"]),
        ([added("a"), AddCDCFile("c", {}, 1), removed("b"), AddCDCFile("d", {}, 1)], ["c", "d"]),
        ([added("a", change=False), removed("b", change=False)], []),
    ],
)
def test_the_order_of_files(actions: Sequence[Action], expected: list[str]) -> None:
    files = ChangedFiles(1, actions)
    assert names(files) == expected
    assert files.reaches_end
    assert names(ChangedFiles(1, actions, range(1, ALL.stop))) == expected[1:]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=8), st.integers(1, 80))
def test_pieces_make_up_the_version(of: list[tuple[bool, int]], size: int) -> None:
    actions = [WRITTEN, *(added(f"a{n}", bytes_) if is_new else removed(f"r{n}", bytes_) for n, (is_new, bytes_) in enumerate(of))]
    files, pieces = ChangedFiles(1, actions), list[str]()
    part = ALL
    while True:
        piece, taken = ChangedFiles(1, actions, part).within(size)
        pieces += names(piece)
        *before, last = [0, *(each.size or 0 for each in piece)]
        assert taken == sum(before) + last
        assert sum(before) < size, "only the last file may exceed the bytes"
        assert taken >= size or piece.reaches_end
        if piece.reaches_end:
            break
        assert names(piece), "each piece goes on"
        part = range(piece.part.stop, ALL.stop)
    assert pieces == names(files)


@pytest.mark.parametrize(("operation", "cut"), [("UPDATE", False), ("MERGE", False), ("DELETE", True)])
def test_change_data_files_are_cut_if_they_have_no_new_values(operation: str, cut: bool) -> None:
    info = CommitInfo({"operation": operation})
    piece, taken = ChangedFiles(1, [info, AddCDCFile("a", {}, 7), AddCDCFile("b", {}, 8)]).within(1)
    assert (names(piece), taken, piece.reaches_end) == ((["a"], 7, False) if cut else (["a", "b"], 15, True))
    assert not ChangedFiles(1, [AddCDCFile("a", {}, 7), AddCDCFile("b", {}, 8)]).divides, "nothing tells the operation"


@pytest.mark.parametrize(("operation", "together"), [("UPDATE", True), ("WRITE", False)])
def test_a_version_that_may_have_copied_rows_is_not_cut(operation: str, together: bool) -> None:
    actions: list[Action] = [
        CommitInfo({"operation": operation, "operationParameters": {"mode": "Overwrite"}}),
        removed("a"),
        added("b"),
        added("c"),
    ]
    piece, taken = ChangedFiles(1, actions).within(1)
    assert piece.copies == together
    assert (len(names(piece)), taken) == ((3, 30) if together else (1, 10))


def as_others_tell(table: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in ("id", "p", "_change_type", "_commit_version")]
    return Counter(zip(*columns, strict=True))


def test_the_changes_of_a_feed_are_those_that_delta_rs_tells(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": pa.array(range(20), pa.int64()), "p": [f"p{n % 3}" for n in range(20)]})
    deltalake.write_deltalake(tmp_path, rows, partition_by=["p"], configuration=feed)
    deltalake.write_deltalake(tmp_path, rows.slice(3, 4), mode="append")
    theirs = deltalake.DeltaTable(tmp_path)
    theirs.delete("id = 5")
    theirs.update(updates={"id": "id + 100"}, predicate="id > 16")
    theirs.delete("p = 'p2'")
    ours = sluice.Table.open(tmp_path, consistency="published").changes(-1)
    told_there = pa.table(deltalake.DeltaTable(tmp_path).load_cdf(starting_version=0).read_all())
    assert as_others_tell(ours) == as_others_tell(told_there)
    assert set(ours["_change_type"].to_pylist()) == {"insert", "delete", "update_preimage", "update_postimage"}


def test_delta_rs_tells_the_changes_of_our_feed(place: Place) -> None:
    table = place.create(properties={"delta.enableChangeDataFeed": "true"})
    table.append(flights(*[(origin, 1, delay) for origin in ("JFK", "EWR") for delay in range(6)]))
    table.update({"delay": "delay + 100"}, where="delay > 4")
    table.delete("delay = 3 AND origin = 'JFK'")
    table.delete("origin = 'EWR'")
    table.overwrite(flights(("LGA", 2, 1)))
    ours, theirs = table.changes(-1), pa.table(deltalake.DeltaTable(place.location).load_cdf(starting_version=0).read_all())
    names = [*FLIGHTS.names, "_change_type", "_commit_version"]
    assert rows_of(ours.select(names)) == rows_of(theirs.select(names))
    assert [path.name for path in Path(place.location, "_change_data").rglob("*.parquet")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "properties", [{}, VECTORS, {"delta.enableChangeDataFeed": "true"}, {**VECTORS, "delta.enableChangeDataFeed": "true"}]
)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_changes_lead_from_any_version_to_any_later_one(place: Place, properties: dict[str, str], seed: int) -> None:
    """A random history: what a version held, less what was deleted, plus what was inserted, is what a later one holds."""
    chance = random.Random(seed)
    table = place.create(properties=properties, partition_by=chance.choice([[], ["origin"]]))
    table.append(flights(*[(chance.choice(["JFK", "EWR"]), 1, chance.randrange(9)) for _ in range(20)]))

    def some() -> pa.Table:
        return flights(*[(chance.choice(["JFK", "EWR"]), chance.randrange(3), chance.randrange(9)) for _ in range(chance.randrange(1, 6))])

    steps: list[Callable[[], object]] = [
        lambda: table.append(some()),
        lambda: table.delete(f"delay = {chance.randrange(9)}"),
        lambda: table.update({"delay": "delay + 1"}, where=f"delay = {chance.randrange(9)}"),
        lambda: table.compact(chance.choice(["minor", "major"])),
        lambda: table.overwrite(some().filter(pa.compute.field("origin") == "JFK"), where="origin = 'JFK'"),
    ]
    for _ in range(12):
        chance.choice(steps)()
    held = [Counter(rows_of(table.snapshot(version).to_arrow())) for version in range(table.refresh().version + 1)]
    told_rows = [(kind, version, row[:3]) for kind, version, row in told(table.changes(-1))]
    signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
    for after in range(len(held)):
        state = Counter(held[after])
        for version in range(after + 1, len(held)):
            for kind, at, row in told_rows:
                if at == version:
                    state[row] += signs[kind]
            assert +state == held[version]
            assert min(state.values(), default=0) >= 0
    assert {version for _, version, _ in told_rows} == {
        entry.version for entry in table.history(None) if entry.operation not in ("CREATE TABLE", "OPTIMIZE")
    }


# -- rows that were only copied ------------------------------------------------------------------------------------------

ROWS = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("d", pa.list_(pa.struct([("x", pa.int32())]))),
    ]
)


a_row = st.fixed_dictionaries(
    {
        "a": st.sampled_from([None, 1, 2]),
        "b": st.sampled_from([None, ""]),
        "c": st.sampled_from([None, 0.5, float("nan")]),
        "d": st.sampled_from([None, [], [{"x": 1}], [None]]),
    }
)


@given(st.lists(a_row, max_size=12), st.lists(a_row, max_size=12), st.integers(0, 3))
def test_copies_cancel_each_other(deleted: list[dict[str, Any]], inserted: list[dict[str, Any]], chunk: int) -> None:
    tables = [pa.Table.from_pylist(rows, ROWS) for rows in (deleted, inserted)]
    tables = [pa.concat_tables([each.slice(0, chunk), each.slice(chunk)]) for each in tables]
    found = [[repr(row) for row in each.to_pylist()] for each in without_copies(*tables)]
    given_rows = [[repr(row) for row in each.to_pylist()] for each in tables]
    before, after = map(Counter, given_rows)
    assert [Counter(rows) for rows in found] == [before - after, after - before]
    for rows, whole in zip(found, given_rows, strict=True):
        left = iter(whole)
        assert all(row in left for row in rows), "what is left keeps its order"


A_TRANSACTION = {"id": "t", "ordinal": 0, "operation": "DELETE", "readVersion": 1, "claimedAt": 5, "ratifiedAt": 9}


def entry_of(made: Made, transaction: dict[str, Any]) -> sluice.HistoryEntry:
    made.commit(operation="DELETE", sluice={"transactions": [transaction]})
    [entry] = sluice.Table.open(made.folder, consistency="published").history(limit=1)
    return entry


def test_what_was_rebased_and_over_how_many_versions(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for _ in range(4):
        made.commit()
    entry = entry_of(made, {**A_TRANSACTION, "kind": "change", "rebased": ["2 vectors merged", "1 delete carried over"]})
    assert (entry.version, entry.kind, entry.rebased_over) == (5, "change", 3)
    assert entry.rebased == ("2 vectors merged", "1 delete carried over")
    assert entry.waited_ms == 4


def test_older_commits_say_less(tmp_path: Path) -> None:
    made = Made(tmp_path)
    old = {name: value for name, value in A_TRANSACTION.items() if name != "readVersion"}
    entry = entry_of(made, old)
    assert (entry.kind, entry.rebased, entry.rebased_over) == ("", (), 0)
    made.commit()
    [foreign] = sluice.Table.open(made.folder, consistency="published").history(limit=1)
    assert (foreign.kind, foreign.rebased, foreign.rebased_over) == ("", (), 0)
    file = Path(made.folder, commit_path(made.versions))
    file.write_bytes(encode_all([CommitInfo({})]))
    os.utime(file, (2_000_000_000, 2_000_000_000))
    [silent] = sluice.Table.open(made.folder, consistency="published").history(limit=1)
    assert (silent.operation, silent.timestamp, silent.waited_ms) == ("", 2_000_000_000_000, None)


def test_a_writer_on_an_old_version_came_behind_the_others(place: Place) -> None:
    table, other = place.create(), place.open()
    for delay in range(3):
        other.append(flights(("JFK", 1, delay)))
    table.overwrite(flights(("EWR", 1, 1)), where="origin = 'EWR'", read_version=0)
    newest, *earlier = table.history()
    assert (newest.version, newest.rebased_over, newest.rebased) == (4, 3, ())
    assert newest.kind == "overwrite"
    assert [(entry.kind, entry.rebased_over) for entry in earlier[-2:]] == [("append", 0), ("other", 0)]


def test_detail_describes_the_latest_version(place: Place) -> None:
    table = place.create(partition_by=["origin"], properties={"delta.enableDeletionVectors": "true", "owner": "ann"})
    table.append(flights(("JFK", 1, 1), ("EWR", 1, 2)))
    place.open().delete("delay = 1")
    found = table.detail()
    assert (found.version, found.num_files, found.partition_columns) == (2, 1, ("origin",))
    assert (found.properties["owner"], found.min_reader_version, found.name) == ("ann", 3, None)
    assert "deletionVectors" in found.features
    assert found.size_bytes == table.snapshot().raw.size_bytes > 0
    assert found.created_ms is not None
    assert found.created_ms <= found.modified_ms
