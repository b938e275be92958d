"""Incremental reads: which rows versions inserted and deleted, however the versions say so, and the error if they cannot."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.service import connect
from sluice.coordinator.service.memory import MemorySession
from sluice.storage.actions import Action, AddCDCFile, AddFile, CommitInfo, Metadata, Protocol, RemoveFile, encode_all
from sluice.storage.data.vectors import Rows, plan_vector
from sluice.storage.log.paths import commit_path
from sluice.storage.schema.schema import from_arrow, schema_to_json
from sluice.tables.read import changes as incremental
from sluice.tables.read import versions
from tests.tables.conftest import FLIGHTS, Place, flights

Told = list[tuple[str, int, tuple[Any, ...]]]


VECTORS = {"delta.enableDeletionVectors": "true"}


def told(table: pa.Table) -> Told:
    """(what became of it, version, row) of every change, sorted."""
    names = [name for name in table.column_names if not name.startswith("_c")]
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    kinds, versions = table["_change_type"].to_pylist(), table["_commit_version"].to_pylist()
    found = list(zip(kinds, versions, rows, strict=True))
    return sorted(found, key=lambda each: (each[1], each[0], [(v is not None, v) for v in each[2]]))


def times(place: Place) -> list[int]:
    """The in-commit timestamp of every version."""
    return [entry.timestamp for entry in reversed(place.open().history(None))]


# -- tables whose log is made by hand ------------------------------------------------------------------------------------

NUMBERS = pa.schema([("n", pa.int64())])


class Made:
    """A plain Delta table, version by version; files hold the given numbers."""

    def __init__(self, folder: Path, schema: pa.Schema = NUMBERS, partition_by: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.versions = 0
        text = schema_to_json(from_arrow(schema))
        self.commit(Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)), Metadata("an-id", text, partition_by, {}))

    def commit(self, *actions: Action, operation: str = "WRITE", **info: Any) -> int:
        key = self.folder / commit_path(self.versions)
        key.parent.mkdir(parents=True, exist_ok=True)
        stamp = 1_700_000_000_000 + self.versions * 1000
        head = CommitInfo({"operation": operation, "timestamp": stamp, "inCommitTimestamp": stamp, **info})
        key.write_bytes(encode_all([head, *actions]))
        self.versions += 1
        return self.versions - 1

    def add(self, path: str, numbers: Sequence[int], gone: Sequence[int] = (), **more: Any) -> AddFile:
        """A file of these numbers, with rows at the positions `gone` deleted."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), file)
        vector = plan_vector(Rows(gone), owner="me")[0] if gone else None
        return AddFile(
            path,
            **{"partition_values": {}, "size": file.stat().st_size, "modification_time": 1, "data_change": True, **more},
            deletion_vector=vector,
        )

    def changes(self, after: int = -1, up_to: int | None = None, **options: Any) -> Told:
        return told(sluice.Table.open(self.folder, consistency="published").changes(after, up_to, **options))


def gone(added: AddFile, **more: Any) -> RemoveFile:
    options = {"data_change": True, "partition_values": added.partition_values, "size": added.size, **more}
    return RemoveFile(added.path, deletion_vector=added.deletion_vector, **options)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "made")


# -- what happened -------------------------------------------------------------------------------------------------------


def test_the_schema_and_the_times(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    found = table.changes(0)
    beside = [("_change_type", pa.string()), ("_commit_version", pa.int64()), ("_commit_timestamp", pa.timestamp("us", "UTC"))]
    assert found.schema.equals(pa.schema([*FLIGHTS, *(pa.field(*each) for each in beside)]))
    assert table.changes(1).schema.equals(found.schema)
    at = datetime.fromtimestamp(times(place)[1] / 1000, tz=timezone.utc)
    assert found["_commit_timestamp"].to_pylist() == [at]


@pytest.mark.parametrize("vectors", [False, True])
def test_rows_that_were_only_copied_are_no_changes(place: Place, vectors: bool) -> None:
    table = place.create(properties=VECTORS if vectors else {})
    table.append(flights(*[("JFK", 1, delay) for delay in (1, 2, 2, 3)]))
    table.update({"delay": "delay + 10"}, where="delay = 3")
    table.delete("delay = 1")
    assert told(table.changes(1)) == [("delete", 2, ("JFK", 1, 3)), ("insert", 2, ("JFK", 1, 13)), ("delete", 3, ("JFK", 1, 1))]
    # told by whole rows, whatever is asked for
    assert table.changes(1, 2, columns=["origin"]).to_pydict()["_change_type"] == ["delete", "insert"]
    assert told(table.changes(1, where="delay > 5")) == [("insert", 2, ("JFK", 1, 13))]


def test_an_overwrite_replaces_every_row_also_by_an_equal_one(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1), ("EWR", 1, 1)))
    table.overwrite(flights(("JFK", 1, 1)), where="origin = 'JFK'")
    table.overwrite(flights(("EWR", 1, 1)))
    assert told(table.changes(1)) == [
        ("delete", 2, ("JFK", 1, 1)),
        ("insert", 2, ("JFK", 1, 1)),
        ("delete", 3, ("EWR", 1, 1)),
        ("delete", 3, ("JFK", 1, 1)),
        ("insert", 3, ("EWR", 1, 1)),
    ]


def test_versions_that_change_no_rows(made: Made) -> None:
    made.commit(made.add("a", [1]))
    made.commit(made.add("a", [1], data_change=False))
    made.commit(gone(made.add("a", [1]), data_change=False), made.add("b", [1], data_change=False), operation="OPTIMIZE")
    made.commit(operation="SET TBLPROPERTIES")
    assert made.changes() == [("insert", 1, (1,))]
    assert made.changes(1) == []


def test_differences_of_vectors(made: Made) -> None:
    made.commit(made.add("a", [10, 11, 12, 13]))
    made.commit(gone(made.add("a", [])), made.add("a", [], [1]))
    made.commit(gone(made.add("a", [], [1])), made.add("a", [], [1, 3]))
    made.commit(gone(made.add("a", [], [1, 3])), made.add("a", [], [0, 3]))
    made.commit(gone(made.add("a", [], [0, 3])), made.add("a", []), operation="RESTORE")
    assert made.changes() == [
        *(("insert", 1, (n,)) for n in (10, 11, 12, 13)),
        ("delete", 2, (11,)),
        ("delete", 3, (13,)),
        ("delete", 4, (10,)),
        ("insert", 4, (11,)),
        ("insert", 5, (10,)),
        ("insert", 5, (13,)),
    ]
    assert made.changes(3, 4, where="n > 10") == [("insert", 4, (11,))]


def test_a_file_that_goes_takes_only_its_live_rows(made: Made) -> None:
    half_gone = made.add("a", [10, 11, 12, 13], [0, 2])
    made.commit(half_gone)
    made.commit(gone(half_gone), operation="TRUNCATE")
    assert made.changes() == [("insert", 1, (11,)), ("insert", 1, (13,)), ("delete", 2, (11,)), ("delete", 2, (13,))]


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE", "MERGE"])
def test_copies_of_other_engines_are_no_changes_either(made: Made, operation: str) -> None:
    made.commit(made.add("a", [1, 2, 2]), made.add("b", [3]))
    made.commit(gone(made.add("a", [])), gone(made.add("b", [])), made.add("c", [2, 4, 1]), operation=operation)
    assert made.changes(1) == [("delete", 2, (2,)), ("delete", 2, (3,)), ("insert", 2, (4,))]


def test_change_data_files_tell_everything_of_their_version(made: Made) -> None:
    made.commit(made.add("a", [1, 2]))
    told_by = io.BytesIO()
    kinds = ["update_preimage", "update_postimage", "delete", "insert"]
    pq.write_table(pa.table({"n": pa.array([1, 5, 2, 7]), "_change_type": kinds}), told_by)
    path = made.folder / "_change_data" / "c"
    path.parent.mkdir()
    path.write_bytes(told_by.getvalue())
    made.commit(gone(made.add("a", [])), made.add("b", [5, 99]), AddCDCFile("_change_data/c", {}, path.stat().st_size))
    assert made.changes(1) == sorted(zip(kinds, [2] * 4, [(1,), (5,), (2,), (7,)], strict=True))
    assert made.changes(1, where="_change_type LIKE 'update%' AND n > 1") == [("update_postimage", 2, (5,))]


def test_older_rows_lack_newer_columns(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    carrier = flights(("EWR", 1, 2)).append_column("carrier", pa.array(["UA"]))
    table.append(carrier, merge_schema=True)
    assert told(table.changes(-1)) == [("insert", 1, ("JFK", 1, 1, None)), ("insert", 2, ("EWR", 1, 2, "UA"))]
    assert told(table.changes(-1, 1)) == [("insert", 1, ("JFK", 1, 1))]


# -- which versions, rows and columns ------------------------------------------------------------------------------------


def test_intervals_are_open_on_the_left_and_closed_on_the_right(place: Place) -> None:
    table = place.create()
    for delay in range(1, 6):
        table.append(flights(("JFK", 1, delay)))
    at = times(place)

    def delays(*interval: int | None, by: str = "version") -> list[int]:
        after, up_to = interval
        assert after is not None
        return table.changes(after, up_to, by=by)["delay"].to_pylist()

    assert delays(1, 3) == [2, 3] == delays(at[1], at[3], by="timestamp")
    assert delays(at[1] - 1, at[3] + 1, by="timestamp")[:3] == [1, 2, 3]
    assert delays(3, None) == [4, 5] == delays(at[3], None, by="timestamp")
    assert delays(0, 5) == delays(-1, None) == [1, 2, 3, 4, 5] == delays(0, at[5] + 1_000_000, by="timestamp")
    assert delays(2, 2) == delays(5, None) == delays(at[2], at[2], by="timestamp") == delays(at[5], None, by="timestamp") == []
    assert delays(at[0] - 10, at[0] - 5, by="timestamp") == []
    # one after the other they cover everything once
    cuts = [-1, 0, 2, 3, 5]
    assert [d for after, up_to in pairwise(cuts) for d in delays(after, up_to)] == [1, 2, 3, 4, 5]


def test_columns_and_conditions(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    table.delete("origin = 'JFK'")
    found = table.changes(-1, columns=["DELAY", "_commit_version", "delay"], where="month < 9 AND _commit_version = 2")
    assert found.column_names == ["delay", "_change_type", "_commit_version", "_commit_timestamp"]
    assert found["delay"].to_pylist() == [1]
    assert told(table.changes(-1, where="_change_type = 'delete' OR delay = 2")) == [
        ("insert", 1, ("EWR", 2, 2)),
        ("delete", 2, ("JFK", 1, 1)),
    ]
    assert table.changes(-1, columns=[], where="_change_type = 'insert'").num_rows == 2
    at = datetime.fromtimestamp(times(place)[2] / 1000, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert told(table.changes(-1, where=f"_commit_timestamp >= TIMESTAMP '{at}'")) == [("delete", 2, ("JFK", 1, 1))]


def test_files_that_cannot_matter_are_not_read(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    for path in Path(place.location).glob("origin=EWR/**/*.parquet"):
        path.unlink()
    assert told(table.changes(-1, where="origin = 'JFK'")) == [("insert", 1, ("JFK", 1, 1))]


def test_batches_come_as_they_are_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_COMMITS", 2)
    monkeypatch.setattr(incremental, "_FILES", 3)
    table = place.create()
    for delay in range(1, 12):
        table.append(flights(("JFK", 1, delay), ("EWR", 1, delay)))
    table.delete("delay = 4")
    batches = table.changes_batches(-1)
    first = next(batches)
    assert isinstance(first, pa.RecordBatch)
    assert first.num_rows == 1
    rest = pa.Table.from_batches([first, *batches])
    assert told(rest) == told(table.changes(-1))
    assert rest["_commit_version"].to_pylist() == sorted(rest["_commit_version"].to_pylist())
    assert rest.num_rows == 24


# -- where it is read from -----------------------------------------------------------------------------------------------


def test_versions_that_are_not_published_yet(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.create()
    table = place.open(ack="ratified", limits=Limits(fast_path=False))
    monkeypatch.setattr(table.coordinated.background, "submit", lambda _job: None)
    table.append(flights(("JFK", 1, 1)))
    assert not (Path(place.location) / commit_path(1)).exists()
    assert told(table.changes(0)) == [("insert", 1, ("JFK", 1, 1))] == told(table.changes(times(place)[0], by="timestamp"))
    assert table.changes(0, consistency="published").num_rows == 0
    monkeypatch.undo()
    table.close()


def test_without_a_coordinator(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    table.delete("delay = 1")
    at = times(place)
    alone = sluice.Table.open(place.location, consistency="published")
    session = connect.connect(place.coordinator)
    assert isinstance(session, MemorySession)
    session.disconnect()
    expected = [("insert", 1, ("JFK", 1, 1)), ("delete", 2, ("JFK", 1, 1))]
    for reader, level in ((alone, None), (table, "published")):
        assert told(reader.changes(-1, consistency=level)) == expected
        assert told(reader.changes(at[1], at[2], by="timestamp", consistency=level)) == expected[1:]
    with pytest.raises(sluice.errors.CoordinatorUnavailable):
        table.changes(-1)
    session.reconnect()


def test_a_table_without_times_of_its_own_has_those_of_its_files(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"n": [1]}))
    deltalake.write_deltalake(tmp_path, pa.table({"n": [2]}), mode="append")
    logs = [tmp_path / commit_path(version) for version in (0, 1)]
    table = sluice.Table.open(tmp_path, consistency="published")
    found = table.changes(-1)
    at = [int(each.timestamp() * 1000) for each in found["_commit_timestamp"].to_pylist()]
    assert at == [log.stat().st_mtime_ns // 1_000_000 for log in logs]
    assert table.changes(at[0], at[1], by="timestamp")["n"].to_pylist() == [2]


# -- what cannot be told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((3, 1), {}, sluice.errors.InvalidRequest, "after=3 is beyond up_to=1"),
        ((9, 8), {"by": "timestamp"}, sluice.errors.InvalidRequest, "after=9 is later than up_to=8"),
        ((7,), {}, sluice.errors.VersionNotFound, "version 7 .* the latest version is 1"),
        ((0, 7), {}, sluice.errors.VersionNotFound, "version 7 .* the latest version is 1"),
        ((-2,), {}, sluice.errors.InvalidRequest, "after=-2"),
        (("0",), {}, sluice.errors.InvalidRequest, "after is '0'"),
        ((0, 1.5), {}, sluice.errors.InvalidRequest, "up_to is 1.5"),
        (("soon",), {"by": "timestamp"}, sluice.errors.InvalidRequest, "after is 'soon'"),
        ((0,), {"by": "date"}, sluice.errors.InvalidRequest, "by is 'date' of type str: give one of version, timestamp"),
        ((0,), {"columns": ["carrier"]}, sluice.errors.InvalidRequest, "column 'carrier' is not in the table"),
        ((0,), {"where": "carrier = 1"}, sluice.errors.PredicateError, "carrier"),
        ((0,), {"consistency": "newest"}, sluice.errors.InvalidRequest, "give one of latest, serial, session, published"),
    ],
)
def test_what_is_no_interval_or_no_column(
    place: Place, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    for way in (table.changes, table.changes_batches):
        with pytest.raises(error, match=words):
            way(*arguments, **options)


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_Commit_Timestamp"])
def test_a_column_with_one_of_the_names(tmp_path: Path, name: str) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({name: [1]}))
    with pytest.raises(sluice.errors.InvalidRequest, match=f"a column '{name}'.*rename it"):
        sluice.Table.open(tmp_path, consistency="published").changes(-1)


def cleaned_up(place: Place, versions: int, first: int) -> list[int]:
    """A table of so many appends, whose commits before `first` were removed behind a checkpoint; the versions' times."""
    table = place.create(partition_by=[])
    for delay in range(1, versions):
        table.append(flights(("JFK", 1, delay)))
        if delay == first:
            table.checkpoint()
    at = times(place)
    for version in range(first):
        (Path(place.location) / commit_path(version)).unlink()
    return at


@pytest.mark.parametrize("consistency", ["latest", "published"])
def test_commits_that_were_cleaned_up(place: Place, consistency: str) -> None:
    at = cleaned_up(place, 8, 4)
    table = place.open(consistency=consistency)
    assert table.changes(3)["delay"].to_pylist() == [4, 5, 6, 7]
    for after, up_to in ((-1, None), (2, None), (0, 6)):
        with pytest.raises(sluice.errors.VersionNotFound, match="the log has the commits of versions 4 to 7") as caught:
            table.changes(after, up_to)
        assert (caught.value.details["earliest"], caught.value.details["latest"]) == (4, 7)
    with pytest.raises(sluice.errors.VersionNotFound, match="versions 4 to 7 are"):
        table.changes(0, 2)
    # commits are looked for at the call, before anything is read
    with pytest.raises(sluice.errors.VersionNotFound):
        table.changes_batches(0)
    assert table.changes(at[4], by="timestamp")["delay"].to_pylist() == [5, 6, 7]
    gone_since = r"not all available any more: the log has the commits of versions 4 to 7, the first of 20"
    for moment in (0, at[2], at[4] - 1):
        with pytest.raises(sluice.errors.VersionNotFound, match=gone_since) as caught:
            table.changes(moment, by="timestamp")
        assert caught.value.details["earliest"] == 4


def test_data_files_that_were_cleaned_up(place: Place) -> None:
    table = place.create(partition_by=[])
    for delay in (1, 2):
        table.append(flights(("JFK", 1, delay)))
    first, second = (Path(place.location) / path for path in table.snapshot().files()["path"].to_pylist())
    if pq.ParquetFile(first).read()["delay"].to_pylist() == [2]:
        first, second = second, first
    table.delete("delay = 1")
    table.append(flights(("JFK", 1, 3)))
    table.delete("delay = 2")
    first.unlink()
    words = r"the changes of version 1 .* cannot be read any more: .*; the changes after version 3 are complete"
    with pytest.raises(sluice.errors.MissingObject, match=words) as caught:
        table.changes(-1)
    assert (caught.value.details["version"], caught.value.details["complete_after"]) == (1, 3)
    assert told(table.changes(3)) == [("insert", 4, ("JFK", 1, 3)), ("delete", 5, ("JFK", 1, 2))]
    with pytest.raises(sluice.errors.MissingObject, match="the changes of version 3"):
        table.changes(2)
    second.unlink()
    with pytest.raises(sluice.errors.MissingObject, match="the changes of no later version are complete either"):
        table.changes(-1)
    # rows before the trouble are shown
    batches = table.changes_batches(3)
    assert next(batches)["delay"].to_pylist() == [3]
    with pytest.raises(sluice.errors.MissingObject, match="the changes of version 5"):
        next(batches)


def test_a_vector_that_was_cleaned_up(made: Made) -> None:
    numbers = list(range(5_000))
    vector, stored = plan_vector(Rows(random.Random(1).sample(numbers, 1_000)), owner="me")
    assert stored is not None
    whole = made.add("a", numbers)
    made.commit(whole)
    holed = AddFile("a", {}, whole.size, 1, data_change=True, deletion_vector=vector)
    made.commit(gone(whole), holed)
    made.commit(made.add("b", [1]))
    (made.folder / "me").mkdir()
    (made.folder / stored[0]).write_bytes(stored[1])
    assert len(made.changes(1, 2)) == 1_000
    (made.folder / stored[0]).unlink()
    with pytest.raises(
        sluice.errors.MissingObject, match=r"the changes of version 2 .* deletion vector .*the changes after version 2 are complete"
    ):
        made.changes(0)
    assert made.changes(2) == [("insert", 3, (1,))]


def test_a_version_missing_in_the_middle_is_damage_not_cleanup(place: Place) -> None:
    table = place.create()
    for delay in range(1, 5):
        table.append(flights(("JFK", 1, delay)))
    reader = sluice.Table.open(place.location, consistency="published")
    (Path(place.location) / commit_path(2)).unlink()
    with pytest.raises(sluice.errors.LogGap, match="version 2"):
        reader.changes(0, 4)


def test_a_column_whose_type_was_changed(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"n": ["one"]}))
    deltalake.write_deltalake(tmp_path, pa.table({"n": [2]}), mode="overwrite", schema_mode="overwrite")
    deltalake.write_deltalake(tmp_path, pa.table({"n": [3]}), mode="append")
    table = sluice.Table.open(tmp_path, consistency="published")
    with pytest.raises(sluice.errors.InvalidRequest, match=r"type was changed between the versions -1 and 2 .*'n'.* separately"):
        table.changes(-1)
    assert table.changes(-1, 0)["n"].to_pylist() == ["one"]
    assert table.changes(1)["n"].to_pylist() == [3]


def test_a_damaged_file_is_called_damaged(made: Made) -> None:
    made.commit(made.add("a", [1]))
    (made.folder / "a").write_bytes(b"PAR1 no more")
    with pytest.raises(sluice.errors.Corrupt, match="'a' cannot be read"):
        made.changes()


def test_a_removed_file_whose_partition_nobody_told(tmp_path: Path) -> None:
    made = Made(tmp_path, pa.schema([("n", pa.int64()), ("p", pa.string())]), ("p",))
    added = made.add("a", [1], partition_values={"p": "x"})
    made.commit(added)
    made.commit(gone(added, partition_values=None))
    assert made.changes(-1, 1) == [("insert", 1, (1, "x"))]
    with pytest.raises(sluice.errors.Corrupt, match="version 2 removed 'a' without naming its partition"):
        made.changes()
