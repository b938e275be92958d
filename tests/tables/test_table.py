"""The Python API: what each call does to the rows, and what other engines then read."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import sluice
from sluice.storage.stores.memory import MemoryStore

from .conftest import FLIGHTS, Place, flights, present, rows_of


def test_every_engine_reads_the_same(place: Place) -> None:
    table = place.create()
    commit = present(table.append(flights(("JFK", 1, 5), ("EWR", 2, None), ("LGA", 3, -1))))
    assert (commit.version, commit.ordinal) == (1, 0)
    assert table.snapshot().to_arrow(columns=["delay"], where="origin = 'JFK'").to_pydict() == {"delay": [5]}
    table.delete("delay < 0")
    expected = rows_of(table.snapshot().to_arrow())
    assert expected == [("EWR", 2, None), ("JFK", 1, 5)]
    assert rows_of(deltalake.DeltaTable(place.location).to_pyarrow_table().select(FLIGHTS.names)) == expected
    assert rows_of(pl.read_delta(place.location).select(FLIGHTS.names).to_arrow().cast(FLIGHTS)) == expected


def test_replacing_by_a_data_condition_keeps_the_other_rows_of_a_file(place: Place) -> None:
    table = place.create(partition_by=[])
    table.append(flights(("JFK", 1, 1), ("JFK", 2, 50), ("EWR", 1, 60)))
    table.overwrite(flights(("LGA", 1, 99)), where="delay >= 50")
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1), ("LGA", 1, 99)]


def test_delete_by_partition_and_by_data(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 2), ("EWR", 1, 3), ("LGA", 1, None)))
    table.delete("origin = 'EWR'")
    table.delete("delay = 2")
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1), ("LGA", 1, None)]
    entries = table.history()
    assert [e.operation for e in entries[:2]] == ["DELETE", "DELETE"]
    assert entries[0].metrics["numCopiedRows"] == "1"
    assert entries[1].metrics["numCopiedRows"] == "0"
    assert table.delete("delay = 12345") is None


def test_time_travel(place: Place) -> None:
    table = place.create()
    first = present(table.append(flights(("JFK", 1, 1))))
    time.sleep(0.01)
    second = present(table.append(flights(("JFK", 1, 2))))
    assert table.snapshot(version=1).to_arrow().num_rows == 1
    assert table.snapshot(timestamp=first.timestamp).version == 1
    assert table.snapshot(timestamp=second.timestamp - 1).version == 1
    assert table.snapshot(timestamp=second.timestamp).version == 2


def test_a_snapshot_does_not_move(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    snapshot = table.snapshot()
    table.overwrite(flights(("EWR", 2, 2)))
    assert rows_of(snapshot.to_arrow()) == [("JFK", 1, 1)]


def test_merge_schema_takes_a_column_of_nulls_without_a_type(place: Place) -> None:
    table = place.create()
    wider = flights(("JFK", 1, 1)).append_column("carrier", pa.array(["UA"]))
    table.append(wider.set_column(2, "delay", pa.nulls(1)), merge_schema=True)
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, None, "UA")]
    with pytest.raises(sluice.errors.SchemaMismatch, match=r"column 'gate' has no type \(void\).*give it a type"):
        table.append(wider.append_column("gate", pa.nulls(1)), merge_schema=True)
    with pytest.raises(sluice.errors.SchemaMismatch, match=r"column 'v' has no type \(void\)"):
        sluice.Table.create(f"{place.location}-2", pa.schema([("a", pa.int64()), ("v", pa.null())]), coordinator=place.coordinator)


def test_merge_schema_adds_columns(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    wider = flights(("EWR", 2, 2)).append_column("carrier", pa.array(["UA"]))
    with pytest.raises(sluice.errors.SchemaMismatch, match="carrier"):
        table.append(wider)
    table.append(wider, merge_schema=True)
    assert rows_of(table.snapshot().to_arrow()) == [("EWR", 2, 2, "UA"), ("JFK", 1, 1, None)]
    table.append(flights(("LGA", 1, 1)), merge_schema=True)
    assert table.snapshot().to_arrow().num_rows == 3


NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.int32()),
        pa.field("v", pa.int64()),
        pa.field("s", pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string()), pa.field("z", pa.int64(), nullable=False)])),
    ]
)


def test_nullable_columns_that_the_data_lacks_are_null(place: Place) -> None:
    table = sluice.Table.create(place.location, NESTED, partition_by=["day"], coordinator=place.coordinator)
    table.append(pa.table({"id": [1], "day": pa.array([1], pa.int32())}))
    with table.begin() as begun:
        begun.append(iter(pa.table({"DAY": pa.array([1], pa.int32()), "ID": [2], "v": [7]}).to_batches()))
    table.append(pa.table({"id": [3], "day": pa.array([1], pa.int32()), "s": [{"z": 5}]}))
    empty = {"v": None, "s": None}
    rows = [
        {"id": 1, "day": 1, **empty},
        {"id": 2, "day": 1, **empty, "v": 7},
        {"id": 3, "day": 1, "v": None, "s": {"x": None, "y": None, "z": 5}},
    ]
    assert table.snapshot().to_arrow().sort_by("id").to_pylist() == rows
    table.overwrite(pa.table({"id": [4], "day": pa.array([1], pa.int32())}), dynamic=True)
    assert table.snapshot().to_arrow().to_pylist() == [{"id": 4, "day": 1, **empty}]

    before = table.snapshot().version
    with pytest.raises(sluice.errors.SchemaMismatch, match="column 'id' is NOT NULL and missing in the data"):
        table.append(pa.table({"day": pa.array([1], pa.int32())}))
    with pytest.raises(sluice.errors.SchemaMismatch, match=r"column 's\.z' is NOT NULL and missing in the data"):
        table.append(pa.table({"id": [5], "day": pa.array([1], pa.int32()), "s": [{"x": 5}]}))
    with pytest.raises(sluice.errors.SchemaMismatch, match=r"the data lacks column 'day' of the table; it is a partition column"):
        table.append(pa.table({"id": [5]}))
    with pytest.raises(sluice.errors.SchemaMismatch, match="'w', which the table lacks"):
        table.append(pa.table({"id": [5], "day": pa.array([1], pa.int32()), "w": [1]}))
    assert table.snapshot().version == before


def test_a_null_struct_may_have_nulls_where_its_fields_may_not(place: Place) -> None:
    kind = pa.struct([pa.field("z", pa.int64(), nullable=False)])
    schema = pa.schema([pa.field("s", kind), pa.field("l", pa.list_(kind))])
    structs = pa.StructArray.from_arrays([pa.array([1, None])], fields=list(kind), mask=pa.array([False, True]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), structs)
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator)
    table.append(pa.table([structs, lists], schema=schema))
    assert table.snapshot().to_arrow().to_pylist() == [{"s": {"z": 1}, "l": [{"z": 1}]}, {"s": None, "l": [None]}]


@pytest.mark.parametrize("isolation", ["Serializable", "WriteSerializable"])
def test_isolation_levels_differ_in_blind_appends(place: Place, isolation: str) -> None:
    table, other = place.create(properties={"delta.isolationLevel": isolation}), place.open()
    table.append(flights(("JFK", 1, 1)))
    read = table.snapshot().version
    other.append(flights(("JFK", 1, 2)))

    def overwrite() -> None:
        table.overwrite(flights(("JFK", 1, 9)), where="origin = 'JFK'", read_version=read)

    if isolation == "Serializable":
        with pytest.raises(sluice.errors.ConcurrentAppendException) as caught:
            overwrite()
        assert caught.value.winning_version == read + 1
        assert caught.value.retryable
        assert "origin=JFK" in str(caught.value)
    else:  # what was appended since it was read stays
        overwrite()
        assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 2), ("JFK", 1, 9)]


def test_conflicts_by_partition(place: Place) -> None:
    table, other = place.create(properties={"delta.isolationLevel": "Serializable"}), place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 1, 1)))
    read = table.snapshot().version
    other.overwrite(flights(("EWR", 1, 2)), where="origin = 'EWR'")
    table.overwrite(flights(("JFK", 1, 9)), where="origin = 'JFK'", read_version=read)
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.overwrite(flights(("EWR", 1, 9)), where="origin = 'EWR'", read_version=read)


def test_new_columns_stop_no_writer_that_does_not_know_them(place: Place) -> None:
    table, other = place.create(), place.open()
    plan = other.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 1)))
    table.append(flights(("EWR", 2, 2)).append_column("carrier", pa.array(["UA"])), merge_schema=True)
    other.commit_write(plan, files)
    assert rows_of(table.snapshot().to_arrow()) == [("EWR", 2, 2, "UA"), ("JFK", 1, 1, None)]


def test_history_tells_who_and_how_long(place: Place) -> None:
    place.create()
    place.open(application="loader").append(flights(("JFK", 1, 1)))
    newest = place.open().history(limit=1)[0]
    assert newest.application == "loader"
    assert newest.pid > 0
    assert newest.host
    assert newest.operation == "WRITE"
    assert newest.waited_ms is not None
    assert newest.waited_ms >= 0


def test_published_consistency_reads_any_delta_table(tmp_path: Path) -> None:
    location = tmp_path / "foreign"
    deltalake.write_deltalake(location, flights(("JFK", 1, 1)), partition_by=["origin"])
    table = sluice.Table.open(location, consistency="published")
    deltalake.write_deltalake(location, flights(("EWR", 2, 2)), mode="append")
    assert rows_of(table.refresh().snapshot().to_arrow(columns=FLIGHTS.names)) == [("EWR", 2, 2), ("JFK", 1, 1)]
    assert table.snapshot(version=0).to_arrow().num_rows == 1
    assert [e.version for e in table.history()] == [1, 0]
    with pytest.raises(sluice.errors.InvalidRequest, match="read"):
        table.append(flights(("X", 1, 1)))


def test_attach_and_detach(place: Place) -> None:
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)), partition_by=["origin", "month"])
    with pytest.raises(sluice.errors.NotATable, match="attach"):
        place.open()
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.append(flights(("EWR", 1, 1)))
    with pytest.raises(Exception, match=r"(?i)unsupported|feature"):
        deltalake.write_deltalake(place.location, flights(("LGA", 1, 1)), mode="append")
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 2
    assert sluice.Table.attach(place.location, coordinator=place.coordinator).version == 2
    table.detach()
    with pytest.raises(sluice.errors.NotCommitted, match="detached"):
        table.append(flights(("EWR", 1, 2)))
    deltalake.write_deltalake(place.location, flights(("LGA", 1, 1)), mode="append")
    again = sluice.Table.attach(place.location, coordinator=place.coordinator)
    again.append(flights(("EWR", 2, 2)))
    assert rows_of(again.snapshot().to_arrow()) == [("EWR", 1, 1), ("EWR", 2, 2), ("JFK", 1, 1), ("LGA", 1, 1)]
    versions = [e.version for e in again.history(limit=None)]
    assert versions == list(range(again.version, -1, -1))


def test_times_go_up_over_attaching(place: Place) -> None:
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    commit = present(table.append(flights(("EWR", 1, 1))))
    times = [table.snapshot(version=v).timestamp for v in range(commit.version + 1)]
    assert times == sorted(set(times))


def test_many_threads_append_through_one_table(place: Place) -> None:
    table = place.create()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: table.append(flights(("JFK", 1, n))), range(80)))
    assert sorted(r[2] for r in rows_of(table.snapshot().to_arrow())) == list(range(80))
    assert table.version < 80


def test_a_checkpoint_is_written_off_the_commit_path(place: Place) -> None:
    table = place.create(properties={"delta.checkpointInterval": "5"})
    for n in range(11):
        table.append(flights(("JFK", 1, n)))
    table.close()
    log = Path(place.location) / "_delta_log"
    assert sorted(p.name for p in log.glob("*.checkpoint.parquet"))
    assert (log / "_last_checkpoint").exists()
    for name in log.glob("0000000000000000000[0-4].json"):
        name.unlink()
    assert place.open(consistency="published").snapshot().to_arrow().num_rows == 11
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 11
    assert table.checkpoint() == 11


def test_a_checkpoint_is_not_ahead_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """What is acknowledged before it is published has its checkpoint all the same, when it is."""
    name = f"table-{os.urandom(8).hex()}"
    sluice.Table.create(f"memory://{name}", FLIGHTS, coordinator=f"memory://{name}", properties={"delta.checkpointInterval": "1"})
    disk = MemoryStore.open(name).disk
    for n in range(1, 6):
        disk.slow("put_if_absent", lambda: time.sleep(0.2), f"_delta_log/{n:020d}.json")
        disk.slow("put", lambda: time.sleep(0.2), f"_delta_log/{n:020d}.json")
    with sluice.Table.open(f"memory://{name}", coordinator=f"memory://{name}", ack="ratified") as table:
        assert table.append(flights(("JFK", 1, 1))) is not None
    keys = [each.key for each in MemoryStore.open(name).list_from("_delta_log/")]
    MemoryStore.open(name).forget()
    assert "_delta_log/00000000000000000001.checkpoint.parquet" in keys
    assert [message for message in caplog.messages if name in message] == []


def test_public_names() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(hasattr(sluice, name) for name in vars(sluice)["__all__"] if name not in {"configure", "read", "unroute", "use_session"})


def test_a_plan_is_committed_once(place: Place) -> None:
    table, restarted = place.create(), place.open()
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 1)))
    first = present(table.commit_write(plan, files))
    table.append(flights(("EWR", 1, 1)))
    again = present(restarted.commit_write(plan, files))
    assert (again.version, again.ordinal, again.repeated) == (first.version, first.ordinal, True)
    assert table.snapshot().to_arrow().num_rows == 2


def test_a_refused_plan_stays_refused(place: Place) -> None:
    table, other = place.create(), place.open()
    table.append(flights(("JFK", 1, 1)))
    plan = table.plan_write(FLIGHTS, mode="overwrite", where="origin = 'JFK'")
    files = plan.write(flights(("JFK", 1, 9)))
    other.delete("origin = 'JFK'")
    for _ in range(2):
        with pytest.raises(sluice.errors.ConcurrentDeleteReadException):
            table.commit_write(plan, files)
        assert all((Path(place.location) / f.path).exists() for f in files), "only garbage collection may delete them"


def test_dynamic_overwrite_of_partitions_of_any_type(place: Place) -> None:
    """Values that are equal only as doubles are different partitions; a float partition is found again."""
    schema = pa.schema([("exact", pa.decimal128(20, 2)), ("rough", pa.float32()), ("n", pa.int64())])
    table = sluice.Table.create(place.location, schema, partition_by=["exact", "rough"], coordinator=place.coordinator)
    near = [Decimal("100000000000000000.01"), Decimal("100000000000000000.02")]
    rows = pa.table([pa.array(near, schema.types[0]), pa.array([0.1, 0.1], pa.float32()), pa.array([1, 2])], schema=schema)
    table.append(rows)
    table.overwrite(rows.slice(0, 1).set_column(2, "n", pa.array([10])), dynamic=True)
    assert sorted(table.snapshot().to_arrow()["n"].to_pylist()) == [2, 10]
    table.overwrite(rows.slice(0, 1).set_column(0, "exact", pa.array([None], schema.types[0])), dynamic=True)
    assert table.snapshot().to_arrow().num_rows == 3


def _scan_and_append(begun: sluice.Transaction) -> None:
    begun.scan()
    begun.append(flights(("EWR", 1, 1)))


def _plan(table: sluice.Table) -> Callable[[], object]:
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("EWR", 1, 1)))
    return lambda: table.commit_write(plan, files)


STAGED: dict[str, Callable[[sluice.Transaction], object]] = {
    "append": lambda t: t.append(flights(("EWR", 1, 1))),
    "scan and append": _scan_and_append,
    "update": lambda t: t.update({"delay": "delay + 1"}),
    "delete": lambda t: t.delete("delay = 1"),
    "overwrite": lambda t: t.overwrite(flights(("EWR", 1, 1))),
}


@pytest.mark.parametrize("what", [*STAGED, "plan"])
def test_what_was_begun_before_a_table_was_detached_is_told_so(place: Place, what: str) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    begun = table.begin()
    commit = _plan(table) if what == "plan" else begun.commit
    if what in STAGED:
        STAGED[what](begun)
    place.open().detach()
    with pytest.raises(sluice.errors.Refused, match="the table was detached from sluice") as refused:
        commit()
    assert refused.value.rule == "detached"
