"""Columns that are renamed, dropped and added beside writers: who only appends commits, who read the table is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.errors import ConcurrentAppendException, MetadataChangedException, ProtocolChangedException
from sluice.storage.errors import SchemaMismatch
from tests.fixtures.one_meaning import by_slots_only
from tests.tables.conftest import Place, rows_of
from tests.tables.mapped import plain, rename


def _renamed(table: sluice.Table) -> None:
    rename(table, v="w")


def _dropped(table: sluice.Table) -> None:
    table.drop_columns(["v"])


def _added(table: sluice.Table) -> None:
    table.add_columns([sluice.NewColumn(pa.field("w", pa.int64()), after="id")])


def _commented(table: sluice.Table) -> None:
    table.alter_columns([sluice.ColumnChange(("v",), comment="what it is")])


def _partition_renamed(table: sluice.Table) -> None:
    rename(table, p="q")


AFTER = {
    _renamed: [(1, "one", "a"), (2, "two", "b"), (3, "three", "a")],
    _dropped: [(1, "a"), (2, "b"), (3, "a")],
    _added: [(1, None, "one", "a"), (2, None, "two", "b"), (3, None, "three", "a")],
    _commented: [(1, "one", "a"), (2, "two", "b"), (3, "three", "a")],
    _partition_renamed: [(1, "one", "a"), (2, "two", "b"), (3, "three", "a")],
}


@pytest.mark.parametrize("change", AFTER, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("way", ["fast path", "slots"])
def test_an_append_under_the_former_schema_commits(place: Place, change: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "slots":
        by_slots_only(monkeypatch)
    table = plain(place)
    rows = pa.table({"id": [3], "v": ["three"], "p": ["a"]})
    plan = table.plan_write(rows.schema)
    files = plan.write(rows)
    change(place.open())
    assert table.commit_write(plan, files) is not None
    assert rows_of(place.open().snapshot().to_arrow()) == AFTER[change]


@pytest.mark.notices("only-appends-ignore-columns")
@pytest.mark.parametrize("change", AFTER, ids=lambda each: each.__name__.strip("_"))
def test_whoever_read_the_table_is_refused_with_the_new_name(place: Place, change: Any) -> None:
    table = plain(place)
    transaction = table.begin()
    transaction.delete("v = 'one'")
    change(place.open())
    with pytest.raises(MetadataChangedException) as refused:
        transaction.commit()
    said = {_renamed: "v is w now", _dropped: "v is gone", _partition_renamed: "p is q now"}
    assert said.get(change, "the table's metadata") in str(refused.value)


def test_not_null_and_constraints_stop_appends_as_ever(place: Place) -> None:
    table = plain(place)
    changes: list[Callable[[sluice.Table], object]] = [
        lambda other: other.set_properties({"delta.constraints.c": "id < 100"}),
        lambda other: other.alter_columns([sluice.ColumnChange(("id",), default="7")]),
        lambda other: other.alter_columns([sluice.ColumnChange(("v",), nullable=False)]),
    ]
    for change in changes:
        rows = pa.table({"id": [3], "v": ["three"], "p": ["a"]}, schema=table.schema)
        plan = table.plan_write(rows.schema)
        files = plan.write(rows)
        change(place.open())
        with pytest.raises((MetadataChangedException, ProtocolChangedException)):
            table.commit_write(plan, files)


@pytest.mark.notices("conditions-name-columns-of-files")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_changes_of_different_partitions_commute_under_new_names(place: Place, vectors: str) -> None:
    table = plain(place, **{"delta.enableDeletionVectors": vectors, "delta.isolationLevel": "Serializable"})
    rename(table, p="q", v="w")
    mine = table.begin()
    mine.delete("q = 'a'")
    place.open().append(pa.table({"id": [9], "w": ["nine"], "q": ["b"]}))
    assert mine.commit() is not None
    mine = table.begin()
    mine.delete("q = 'b' AND w = 'two'")
    place.open().append(pa.table({"id": [10], "w": ["two"], "q": ["b"]}))
    with pytest.raises(ConcurrentAppendException):
        mine.commit()
    assert rows_of(place.open().snapshot().to_arrow()) == [(2, "two", "b"), (9, "nine", "b"), (10, "two", "b")]


def test_a_lease_covers_the_partition_whatever_it_is_called(place: Place) -> None:
    table = plain(place)
    rename(table, p="q")
    with table.lease(where="q = 'a'"), ThreadPoolExecutor(1) as pool:
        other = place.open()
        assert pool.submit(other.append, pa.table({"id": [5], "v": ["five"], "q": ["b"]})).result(30) is not None
        with pytest.raises(sluice.errors.LeaseHeld):
            pool.submit(other.append, pa.table({"id": [6], "v": ["six"], "q": ["a"]}), timeout_s=0.3).result(30)


@pytest.mark.notices("columns-are-changed-again")
def test_two_changes_of_columns_at_once_both_commit(place: Place) -> None:
    plain(place)
    with ThreadPoolExecutor(4) as pool:
        tables = [place.open() for _ in range(4)]
        list(pool.map(lambda n: tables[n].add_columns([sluice.NewColumn(pa.field(f"c{n}", pa.int64()))]), range(4)))
    table = place.open()
    assert {*table.schema.names} == {"id", "v", "p", "c0", "c1", "c2", "c3"}
    assert sorted(each.metadata["delta.columnMapping.id"] for each in table.struct.fields) == list(range(1, 8))


@pytest.mark.costly
def test_eight_writers_append_while_columns_are_renamed(place: Place) -> None:
    plain(place)
    count = 12

    def append(writer: int) -> None:
        table = place.open()
        for number in range(count):
            while True:
                try:  # the columns may be called something else before they are written, and then the rows do not fit
                    table.append(pa.table({"id": [100 * writer + number], table.refresh("latest").schema.names[1]: ["v"], "p": ["a"]}))
                    break
                except SchemaMismatch:
                    continue

    def change() -> None:
        table = place.open()
        for number in range(count):
            rename(table, **{table.refresh("latest").schema.names[1]: f"v{number}"})

    with ThreadPoolExecutor(9) as pool:
        work = [pool.submit(change), *(pool.submit(append, writer) for writer in range(1, 9))]
        for each in work:
            each.result(120)
    rows = place.open().snapshot().to_arrow()
    assert rows.schema.names == ["id", f"v{count - 1}", "p"]
    assert rows.num_rows == 2 + 8 * count
    assert rows.column(1).null_count == 0
