"""What a refusal leaves behind: nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.api import Priority
from sluice.coordinator.rules.intent import Terms
from sluice.storage.data import datafiles
from sluice.storage.data.datafiles import FileFormat, write_files
from sluice.storage.errors import StorageFull
from sluice.storage.schema.schema import from_arrow
from sluice.storage.stores import local
from sluice.storage.stores.local import LocalStore
from sluice.tables.transaction import Transaction

from ..conftest import FLIGHTS, Place, flights, rows_of
from ..pictures import files_below


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """A table with two rows, in version 1."""
    table = place.create(properties={"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"})
    table.append(flights(("JFK", 1, 5), ("EWR", 2, None), ("EWR", 2, 7)))
    return table


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "append": lambda t: t.append(flights(("LGA", 3, 1))),
    "delete": lambda t: t.delete("delay = 7"),
    "update": lambda t: t.update({"delay": "delay + 1"}, "delay = 5"),
    "upsert": lambda t: t.upsert(flights(("JFK", 1, 6)), on=["origin", "month"]),
    "compact": lambda t: t.compact("major"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_block_whose_later_operation_is_refused(table: sluice.Table, tmp_path: Path, operation: str, vectors: str) -> None:
    table.set_properties({"delta.enableDeletionVectors": vectors})
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.InvalidRequest), table.begin() as transaction:  # noqa: PT012 - the second operation is refused
        OPERATIONS[operation](transaction)
        transaction.delete("no_such_column = 1")
    assert files_below(tmp_path) == before
    assert table.refresh().version == 2 - (vectors == "true")


@pytest.mark.parametrize("operation", ["delete", "update", "upsert"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_transaction_that_lost(place: Place, table: sluice.Table, tmp_path: Path, operation: str, vectors: str) -> None:
    """Its client deletes the files when it hears of the refusal, which is final: no garbage collection has to find them."""
    table.set_properties({"delta.enableDeletionVectors": vectors})
    transaction = table.begin(isolation="Serializable")
    transaction.scan()
    OPERATIONS[operation](transaction)
    assert operation == "delete" or any(transaction.id in path for path in files_below(tmp_path))
    place.open().overwrite(flights(("LGA", 9, 9)))
    with pytest.raises(sluice.errors.ConcurrentModification):
        transaction.commit()
    assert transaction.state == "refused"
    assert [path for path in files_below(tmp_path) if transaction.id in path] == []


def test_all_parts_of_a_transaction_over_several_tables_that_lost_in_one(place: Place, table: sluice.Table, tmp_path: Path) -> None:
    other = sluice.Table.create(tmp_path / "other", FLIGHTS, coordinator=place.coordinator)
    joint = sluice.transaction(tables=[table, other], if_version={other: 0})
    OPERATIONS["update"](joint[table])  # with change data files
    joint[other].append(flights(("LGA", 3, 1)))
    sluice.Table.open(other.location, coordinator=place.coordinator).append(flights(("LGA", 9, 9)))
    with pytest.raises(sluice.errors.ConcurrentModification):
        joint.commit()
    assert [path for path in files_below(tmp_path) if joint.id in path] == []


@pytest.mark.parametrize("end", ["withdraw", "abort"])
def test_a_transaction_that_was_withdrawn_or_aborted_after_an_operation_that_failed(table: sluice.Table, tmp_path: Path, end: str) -> None:
    before = files_below(tmp_path)
    transaction = table.begin()
    transaction.append(flights(("LGA", 3, 1)))
    if end == "abort":
        with pytest.raises(sluice.errors.InvalidRequest):
            transaction.update({"delay": "no_such_column"})
    assert getattr(transaction, end)() is None
    assert files_below(tmp_path) == before


def test_a_joint_transaction_whose_later_operation_is_refused(place: Place, table: sluice.Table, tmp_path: Path) -> None:
    other = sluice.Table.create(tmp_path / "other", FLIGHTS, coordinator=place.coordinator)
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.SchemaMismatch), sluice.transaction(tables=[table, other]) as t:  # noqa: PT012
        t[table].append(flights(("LGA", 3, 1)))
        t[table].delete("delay = 5")
        t[other].append(pa.table({"other": [1]}))
    assert files_below(tmp_path) == before


def test_65_tables_are_refused_before_their_data_are_written(place: Place, tmp_path: Path) -> None:
    tables = [sluice.Table.create(tmp_path / f"t{number}", FLIGHTS, coordinator=place.coordinator) for number in range(65)]
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.InvalidRequest, match="65 tables, and one may be over 64"):
        sluice.transaction(tables=tables)
    with pytest.raises(sluice.errors.InvalidRequest, match="65 tables, and one may be over 64"), sluice.transaction() as t:  # noqa: PT012
        for each in tables:
            t[each].append(flights(("LGA", 3, 1)))
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.set_properties({"note": "x" * 2_000_000}),
        lambda t: t.replace(FLIGHTS, properties={"note": "x" * 2_000_000}),
        lambda t: t.append(flights(("LGA", 3, 1)), key="\ud800"),
        lambda t: t.append(flights(("LGA", 3, 1)), user_metadata="\ud800"),
        lambda t: t.append(flights(("LGA", 3, 1)), transaction=("\ud800", 1)),
        lambda t: t.delete(f"origin = '{'x' * 1_200_000}' OR delay = 5"),
    ],
)
def test_texts_that_no_commit_can_hold(table: sluice.Table, tmp_path: Path, write: Callable[[sluice.Table], object]) -> None:
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.InvalidRequest):
        write(table)
    assert files_below(tmp_path) == before


def test_texts_that_a_joint_transaction_cannot_file(place: Place, table: sluice.Table, tmp_path: Path) -> None:
    """Each of its parts could be filed alone."""
    kept = {"coordinator": place.coordinator, "partition_by": ["origin"]}
    others = [sluice.Table.create(tmp_path / f"other{number}", FLIGHTS, **kept) for number in range(5)]  # type: ignore[arg-type]
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.InvalidRequest, match="may have 900,000"), sluice.transaction(tables=[table, *others]) as t:  # noqa: PT012
        for each in (table, *others):
            t[each].append(flights(("LGA", 3, 1)))
            t[each].update({"delay": "7"}, f"origin = '{'x' * 200_000}' OR delay = 1")
    assert files_below(tmp_path) == before


def test_what_was_committed_stays(table: sluice.Table) -> None:
    with table.begin() as transaction:
        transaction.append(flights(("LGA", 3, 1)))
        with pytest.raises(sluice.errors.InvalidRequest):
            transaction.delete("no_such_column = 1")
    assert ("LGA", 3, 1) in rows_of(table.refresh().snapshot().to_arrow())


def test_files_that_a_caller_staged_are_the_callers(table: sluice.Table) -> None:
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 3, 1)))
    transaction = Transaction(table.coordinated, table.coordinated.current(), Terms(), Priority(), planned=plan)
    transaction.stage(plan, files)
    transaction.abort()
    assert table.commit_write(plan, files) is not None
    assert ("LGA", 3, 1) in rows_of(table.refresh().snapshot().to_arrow())


@pytest.mark.costly
def test_a_full_disk_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, written = LocalStore(f"file://{tmp_path}"), 0
    monkeypatch.setattr(datafiles, "_PIECE_BYTES", 1024)
    monkeypatch.setattr(datafiles, "_PENDING_BYTES", 4096)
    write = local._Sink.write

    def until_full(self: local._Sink, data: Any) -> int:
        nonlocal written
        written += len(memoryview(data))
        if written > 20_000:
            raise StorageFull("the disk is full")
        return write(self, data)

    monkeypatch.setattr(local._Sink, "write", until_full)

    def batches() -> Iterator[pa.Table]:
        for start in range(2000):
            yield pa.table({"p": [start % 4] * 100, "v": [f"{start} {n} {hash((start, n))}" for n in range(100)]})

    schema = from_arrow(pa.schema([("p", pa.int64()), ("v", pa.string())]))
    with pytest.raises(StorageFull) as full:
        write_files(store, batches(), FileFormat(schema, ("p",), target_file_bytes=1 << 20), transaction_id="tx")
    assert files_below(tmp_path) == {}, full  # while the error is held, nothing is collected
