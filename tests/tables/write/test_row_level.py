"""Rows deleted by deletion vectors: what is written, what other engines read, and writers of different rows of one file."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import sluice
from sluice.storage.actions import AddFile, DeletionVector, RemoveFile
from sluice.storage.actions.codec import decode_commit
from sluice.storage.data.vectors import read_vector
from sluice.tables.write.row_operations import row_count
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of

VECTORS = {"delta.enableDeletionVectors": "true"}
Operation = Callable[[sluice.Transaction], object]
Effect = tuple[Operation, set[int], set[int]]


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """One file of the rows 0 to 99, in version 1, in a table with deletion vectors."""
    return place.filled(*(("JFK", n % 12, n) for n in range(100)), properties=VECTORS, partition_by=[])


def delays(table: sluice.Table) -> list[int]:
    return sorted(table.refresh().snapshot().to_arrow()["delay"].to_pylist())


def file_actions(place: Place, version: int) -> list[AddFile | RemoveFile]:
    data = Path(place.location, "_delta_log", f"{version:020}.json").read_bytes()
    return [action for action in decode_commit(data, name=str(version)) if isinstance(action, (AddFile, RemoveFile))]


def read_by_others(place: Place) -> list[list[int]]:
    by_sql = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place.location)).execute("SELECT delay FROM t").read_all()
    by_polars = pl.scan_delta(place.location).select("delay").collect()
    return [sorted(pa.table(by_sql)["delay"].to_pylist()), sorted(by_polars["delay"].to_list())]


# -- what is written -----------------------------------------------------------------------------------------------------


def test_a_delete_lists_rows_and_leaves_the_file(place: Place, table: sluice.Table) -> None:
    files = sorted(Path(place.location).rglob("*.parquet"))
    table.delete("delay < 10")
    table.delete("delay < 20")
    assert sorted(Path(place.location).rglob("*.parquet")) == files
    removed, added = file_actions(place, 3)
    assert isinstance(removed, RemoveFile)
    assert isinstance(added, AddFile)
    assert removed.path == added.path
    assert removed.deletion_vector is not None
    assert removed.deletion_vector.cardinality == 10
    assert added.deletion_vector is not None
    assert set(read_vector(table.access.store, added.deletion_vector)) == set(range(20))
    assert added.data_change
    assert added.stats is not None
    stats = json.loads(added.stats)
    assert (stats["numRecords"], stats["tightBounds"]) == (100, False)
    assert delays(table) == list(range(20, 100))
    assert read_by_others(place) == [list(range(20, 100))] * 2
    metrics = table.history(1)[0].metrics
    told = {name: metrics[name] for name in ("numDeletedRows", "numCopiedRows", "numRemovedFiles", "numDeletionVectorsAdded")}
    assert told == {"numDeletedRows": "10", "numCopiedRows": "0", "numRemovedFiles": "0", "numDeletionVectorsAdded": "1"}


def test_the_history_counts_files_and_bytes_under_deltas_names(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 2, 2), properties={**VECTORS, "delta.enableChangeDataFeed": "true"}, partition_by=[])
    table.append(flights(("EWR", 1, 3)))
    table.delete("delay IN (1, 3)")  # a part of one file, and the whole other one
    table.update({"month": "9"}, "delay = 2")
    table.upsert(flights(("LGA", 1, 2)), on="delay")
    merged, updated, deleted = (entry.metrics for entry in table.history(3))
    names = ["AddedFiles", "AddedBytes", "RemovedFiles", "RemovedBytes", "AddedChangeFiles", "CopiedRows"]
    of_merges = ["FilesAdded", "BytesAdded", "FilesRemoved", "BytesRemoved", "ChangeFilesAdded", "RowsCopied"]
    vectors = [f"DeletionVectors{each}" for each in ("Added", "Updated", "Removed")]
    assert {"executionTimeMs", "numDeletedRows", *(f"num{each}" for each in names + vectors)} == deleted.keys()
    assert {"executionTimeMs", "numUpdatedRows", *(f"num{each}" for each in names + vectors)} == updated.keys()
    assert {"executionTimeMs", "numSourceRows", *(f"numTarget{each}" for each in of_merges + vectors)} <= merged.keys()
    kept = {each.path for each in file_actions(place, 3) if isinstance(each, AddFile)}
    [gone] = [each for each in file_actions(place, 3) if isinstance(each, RemoveFile) and each.path not in kept]
    for version, counted, found in ((3, deleted, names), (4, updated, names), (5, merged, of_merges)):
        new = [each.size for each in file_actions(place, version) if isinstance(each, AddFile) and each.deletion_vector is None]
        prefix = "numTarget" if counted is merged else "num"
        assert [int(counted[f"{prefix}{each}"]) for each in found[:2]] == [len(new), sum(new)]
        assert counted[f"{prefix}{found[4]}"] == "1"
    assert (deleted["numRemovedFiles"], deleted["numRemovedBytes"]) == ("1", str(gone.size))


def test_a_large_vector_is_a_file_of_the_transactions(place: Place) -> None:
    table = place.filled(*(("JFK", 1, n) for n in range(20_000)), properties=VECTORS, partition_by=[])
    commit = present(table.delete("delay % 7 IN (1, 4)"))
    [vector] = Path(place.location).rglob("deletion_vector_*.bin")
    assert vector.parent.name == commit.transaction_id
    expected = [n for n in range(20_000) if n % 7 not in (1, 4)]
    assert delays(table) == expected
    assert read_by_others(place) == [expected, expected]


def test_a_file_whose_rows_are_all_gone_is_removed(place: Place, table: sluice.Table) -> None:
    table.delete("delay < 60")
    table.delete("delay % 2 = 0 OR month < 6")
    table.delete("delay >= 60 AND month >= 6")
    [removed] = file_actions(place, 4)
    assert isinstance(removed, RemoveFile)
    assert removed.deletion_vector is not None
    assert delays(table) == []
    assert table.history(1)[0].metrics["numRemovedFiles"] == "1"


def test_updates_and_upserts_write_only_the_rows_they_change(place: Place, table: sluice.Table) -> None:
    table.update({"delay": "delay + 1000"}, "delay IN (3, 4)")
    table.upsert(flights(("EWR", 1, 5), ("EWR", 1, 500)), on="delay")
    for version, rows in ((2, 2), (3, 2)):
        added = [a for a in file_actions(place, version) if isinstance(a, AddFile) and a.deletion_vector is None]
        assert [json.loads(a.stats or "")["numRecords"] for a in added] == [rows]
    expected = sorted([*(n for n in range(100) if n not in (3, 4)), 1003, 1004, 500])
    assert delays(table) == expected
    assert read_by_others(place) == [expected, expected]


def test_statistics_keep_their_digits(place: Place) -> None:
    """Bounds that were rounded on the way through JSON would hide rows."""
    table = place.create(properties=VECTORS, partition_by=[])
    digits = ["0.12345678901234567890123", "98765432109876543210.5", "123456789012345678901"]
    stats = f'{{"numRecords":10,"minValues":{{"a":{digits[0]}}},"maxValues":{{"a":{digits[1]},"b":{digits[2]}}}}}'
    plan = table.plan_write(FLIGHTS)
    [add] = plan.write(flights(*(("JFK", 1, n) for n in range(10))))
    table.commit_write(plan, [replace(add, stats=stats)])
    table.delete("delay = 5")
    [after] = [a.stats for a in file_actions(place, 2) if isinstance(a, AddFile)]
    for kept in [*digits, '"tightBounds":false']:
        assert kept in str(after)


@pytest.mark.parametrize("stats", [None, "", "{}", "no JSON", '{"numRecords": -1}', '{"minValues": {"delay": NaN}}', "[]"])
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])
def test_a_file_without_statistics_is_counted_by_its_footer(place: Place, properties: dict[str, str], stats: str | None) -> None:
    """As other engines write them."""
    table = place.create(properties=properties, partition_by=["origin"])
    plan = table.plan_write(FLIGHTS)
    [add] = plan.write(flights(*(("JFK", 1, n) for n in range(10))))
    table.commit_write(plan, [replace(add, stats=stats)])
    table.delete("delay < 3")
    if properties:
        added = next(a for a in file_actions(place, 2) if isinstance(a, AddFile))
        assert json.loads(added.stats or "")["numRecords"] == 10
    table.delete("origin = 'JFK'")
    assert delays(table) == []
    assert [entry.metrics["numDeletedRows"] for entry in table.history(2)] == ["7", "3"]


@pytest.mark.parametrize("way", ["truncate", "overwrite"])
def test_what_replaces_whole_files_does_not_look_into_them(place: Place, way: str) -> None:
    table = place.create(properties=VECTORS, partition_by=["origin"])
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 1), ("EWR", 1, 2)))
    table.commit_write(plan, [replace(add, stats=None) for add in files])
    for add in files:
        Path(place.location, add.path).unlink()
    if way == "truncate":
        table.truncate("origin = 'JFK'")
        table.truncate()
    else:
        table.overwrite(flights(("JFK", 1, 3)), where="origin = 'JFK'")
        table.overwrite(flights())
    assert delays(table) == []


def test_vectors_stay_where_the_property_is_taken_away(place: Place, table: sluice.Table) -> None:
    table.delete("delay < 50")
    table.set_properties({"delta.enableDeletionVectors": "false"})
    table.delete("delay < 60")
    assert [a.deletion_vector is None for a in file_actions(place, 4) if isinstance(a, AddFile)] == [True]
    table.update({"delay": "-delay"}, "delay = 60")
    assert delays(table) == sorted([*range(61, 100), -60])
    assert read_by_others(place) == [delays(table)] * 2


# -- writers of one file -------------------------------------------------------------------------------------------------

# An operation, the rows that go by it, and those that come.
EFFECTS: list[Effect] = [
    (lambda t: t.delete("delay < 10"), set(range(10)), set()),
    (lambda t: t.update({"delay": "delay + 1000"}, "delay BETWEEN 10 AND 19"), set(range(10, 20)), set(range(1010, 1020))),
    (lambda t: t.upsert(flights(("EWR", 0, 20), ("EWR", 0, 2000)), on="delay"), set(), {2000}),
]


@pytest.mark.parametrize("isolation", ["WriteSerializable", "Serializable"])
@pytest.mark.parametrize("first", EFFECTS, ids=["delete", "update", "upsert"])
@pytest.mark.parametrize("second", EFFECTS, ids=["delete", "update", "upsert"])
def test_changes_of_different_rows_of_one_file_go_together(
    place: Place, table: sluice.Table, first: Effect, second: Effect, isolation: str
) -> None:
    one, other = table.begin(isolation=isolation), place.open().begin(isolation=isolation)
    first[0](one)
    second[0](other)
    one.commit()
    if first is second:
        with pytest.raises(sluice.errors.ConcurrentModification):
            other.commit()
    else:
        assert other.commit() is not None
    gone, come = first[1] | second[1], first[2] | second[2]
    assert delays(table) == sorted(set(range(100)) - gone | come)


def test_the_same_row_is_refused_naming_file_and_count(place: Place, table: sluice.Table) -> None:
    [path] = table.snapshot().files()["path"].to_pylist()
    one, other = table.begin(), place.open().begin()
    one.delete("delay < 10")
    other.delete("delay >= 8 AND delay < 30")
    one.commit()
    with pytest.raises(sluice.errors.ConcurrentDeleteDeleteException, match="2 rows") as caught:
        other.commit()
    assert path in str(caught.value)
    assert delays(table) == list(range(10, 100))


def test_without_vectors_files_are_what_writers_share(place: Place) -> None:
    table = place.filled(*(("JFK", 1, n) for n in range(20)), partition_by=[])
    one, other = table.begin(), place.open().begin()
    one.delete("delay = 1")
    other.delete("delay = 2")
    one.commit()
    with pytest.raises(sluice.errors.ConcurrentModification):
        other.commit()


@pytest.mark.notices("looking-into-files-finds-rows")
def test_an_update_into_what_another_deletes_is_noticed(place: Place, table: sluice.Table) -> None:
    """The second would have deleted what the first made of its rows."""
    one, other = table.begin(), place.open().begin()
    one.update({"delay": "-1"}, "delay = 50")
    other.delete("delay < 0 OR delay = 60")
    one.commit()
    with pytest.raises(sluice.errors.ConcurrentAppendException):
        other.commit()


def test_a_delete_is_carried_over_to_the_file_a_compaction_made(place: Place, table: sluice.Table) -> None:
    table.append(flights(*(("EWR", 1, n) for n in range(100, 110))))
    begun = table.begin()
    begun.delete("delay IN (5, 105)")
    begun.update({"delay": "-delay"}, "delay = 6")
    assert place.open().compact() is not None
    assert begun.commit() is not None
    assert delays(table) == sorted([*(n for n in range(110) if n not in (5, 6, 105)), -6])


@pytest.mark.costly
@pytest.mark.slow
def test_many_writers_delete_and_move_rows_and_none_is_lost(place: Place) -> None:
    """Threads take rows at random, their own or anybody's; who is refused takes others."""
    table = place.create(properties=VECTORS, partition_by=["origin"])
    for origin in "AB":
        table.append(flights(*((origin, 1, n) for n in range(200))))
    taken: dict[tuple[str, int], int] = {}
    lock = threading.Lock()

    def work(seed: int) -> int:
        chance, mine, refused = random.Random(seed), place.open(), 0
        for _ in range(12):
            origin, numbers = chance.choice("AB"), sorted(chance.sample(range(200), 4))
            where = f"origin = '{origin}' AND delay IN ({', '.join(map(str, numbers))})"
            begun = mine.begin()
            there = mine.snapshot(begun.read_version).to_arrow(["delay"], where)["delay"].to_pylist()
            if chance.random() < 0.5:
                begun.delete(where)
            else:
                begun.update({"month": f"{seed + 2}", "delay": "delay + 1000"}, where)
            try:
                begun.commit()
            except sluice.errors.ConcurrentModification:
                refused += 1
                continue
            with lock:
                for n in there:
                    taken[origin, n] = taken.get((origin, n), 0) + 1
        return refused

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert set(taken.values()) == {1}, "a row was changed by two transactions that both were committed"
    left = {(origin, delay) for origin, _, delay in rows_of(table.refresh().snapshot().to_arrow()) if delay is not None and delay < 1000}
    assert left == {(origin, n) for origin in "AB" for n in range(200)} - taken.keys()


def test_rows_that_are_left_are_counted_by_statistics() -> None:
    vector = DeletionVector("u", "x" * 20, 10, 3, 1)
    plain = AddFile("a", {}, 1, 1, True, stats='{"numRecords":5}')
    assert row_count([plain]) == 5
    assert row_count([plain, replace(plain, deletion_vector=vector)]) == 7
    assert row_count([replace(plain, stats=None, deletion_vector=vector)]) == 0
