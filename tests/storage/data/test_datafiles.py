from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import AddFile
from sluice.storage.actions.filetable import add_rows
from sluice.storage.data import datafiles
from sluice.storage.data.datafiles import FileFormat, write_files
from sluice.storage.errors import ConstraintViolated, InvalidRequest, SchemaMismatch, StorageUnavailable
from sluice.storage.schema.partitions import uri_to_path
from sluice.storage.schema.schema import PrimitiveType, StructField, StructType, from_arrow
from sluice.storage.stores.memory import MemoryStore
from tests.storage.data.reading import read_files
from tests.storage.strategies import rows_of, schemas, tables, unhurried

SCHEMA = StructType([StructField("p", PrimitiveType("string")), StructField("x", PrimitiveType("long"))])


_OF_THE_CALL = ("transaction_id", "label", "check")


def write(store: MemoryStore, data: Any, **options: Any) -> list[AddFile]:
    batches = [data] if isinstance(data, pa.Table | pa.RecordBatch) else data
    call = {"transaction_id": "tx", **{name: options.pop(name) for name in list(options) if name in _OF_THE_CALL}}
    layout = FileFormat(**{"schema": SCHEMA, "partition_columns": ("p",), **options})
    return write_files(store, batches, layout, **call)


def keys(store: MemoryStore) -> list[str]:
    return [found.key for found in store.list_from("", recursive=True)]


def rows(**columns: Any) -> pa.Table:
    return pa.table(columns)


@unhurried
@given(st.data())
def test_what_was_written_is_read(data: st.DataObject) -> None:
    schema, partitions = data.draw(schemas())
    written = data.draw(st.lists(tables(schema), max_size=3))
    store = MemoryStore.open(uuid.uuid4().hex)
    try:
        adds = write_files(store, written, FileFormat(schema, tuple(partitions)), transaction_id="tx")
        read = read_files(store, add_rows(adds), schema=schema, partition_columns=partitions)
        empty_is_null = tuple(name for name in partitions)
        assert rows_of(read, empty_is_null) == sorted(row for piece in written for row in rows_of(piece, empty_is_null))
        assert read.num_rows == sum(json.loads(add.stats or "")["numRecords"] for add in adds)
        assert len({json.dumps(add.partition_values) for add in adds}) == len(adds), "one small write makes one file for a partition"
    finally:
        store.forget()


def test_a_file_says_what_it_is(store: MemoryStore) -> None:
    (add,) = write(store, rows(p=["a b", "a b"], x=[2, 1]), label="task-0")
    key = uri_to_path(add.path)
    assert re.fullmatch(r"p=a b/part-00000-tx-task-0-c000\.zstd\.parquet", key)
    assert add.path == "p=a%20b/part-00000-tx-task-0-c000.zstd.parquet"
    assert add.partition_values == {"p": "a b"}
    assert add.size == store.head(key).size
    assert abs(add.modification_time - store.head(key).modified_ms) < 60_000
    assert add.data_change
    assert json.loads(add.stats or "")["nullCount"] == {"x": 0}
    file = pq.ParquetFile(pa.BufferReader(store.get(key)))
    assert file.schema_arrow.names == ["x"]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_no_rows_make_no_files(store: MemoryStore) -> None:
    assert write(store, []) == []
    assert write(store, SCHEMA_EMPTY) == []
    assert keys(store) == []


SCHEMA_EMPTY = pa.table({"p": pa.array([], pa.string()), "x": pa.array([], pa.int64())})


def test_an_empty_batch_must_fit_too(store: MemoryStore) -> None:
    with pytest.raises(SchemaMismatch, match="'y'"):
        write(store, pa.table({"y": pa.array([], pa.int64())}))


def test_rows_keep_their_order_within_a_partition(store: MemoryStore) -> None:
    batches = [rows(p=["a", "b", None, ""] * 50, x=list(range(start, start + 200))) for start in range(0, 1000, 200)]
    read = read_files(store, add_rows(write(store, batches)), schema=SCHEMA, partition_columns=["p"])
    seen: dict[Any, list[int]] = defaultdict(list)
    for row in read.to_pylist():
        seen[row["p"]].append(row["x"])
    assert {name: len(values) for name, values in seen.items()} == {"a": 250, "b": 250, None: 500}
    assert all(values == sorted(values) for values in seen.values())


def test_a_file_ends_when_it_has_reached_the_target_size(store: MemoryStore) -> None:
    count = 400_000
    numbers = pa.table({"p": ["a"] * count, "x": pa.array(range(count), pa.int64())})
    target = 300_000
    adds = write(store, numbers.to_batches(max_chunksize=10_000), target_file_bytes=target, compression="none")
    assert len(adds) > 5
    assert all(add.size >= target for add in adds[:-1])
    assert all(add.size <= 2 * target + 10_000 for add in adds), "one row group more than the target at most"
    read = read_files(store, add_rows(adds), schema=SCHEMA, partition_columns=["p"])
    assert read.column("x").to_pylist() == list(range(count))
    bounds = [json.loads(add.stats or "") for add in adds]
    assert [each["minValues"]["x"] for each in bounds[1:]] == [each["maxValues"]["x"] + 1 for each in bounds[:-1]]


def test_a_large_table_is_streamed_and_a_small_one_is_put_once(store: MemoryStore) -> None:
    large = pa.table({"p": ["a"] * 100_000, "x": pa.array(range(100_000))})
    cases = [(large.slice(0, 9), 10_000_000, {"put"}), (large, 10_000_000, {"put"}), (large, 200_000, {"upload", "put"})]
    for data, target, verbs in cases:
        store.disk.calls.clear()
        adds = write(store, data, target_file_bytes=target)
        assert {verb for verb, _ in store.disk.calls} == verbs
        assert len(store.disk.calls) == len(adds)


def test_memory_is_bounded_however_many_rows_and_partitions_there_are(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "_PIECE_BYTES", 500_000)
    monkeypatch.setattr(datafiles, "_PENDING_BYTES", 2_000_000)
    used: list[int] = []
    before = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.Table]:
        for number in range(300):
            used.append(pa.total_allocated_bytes() - before)
            # Nearly all rows in one partition, and one row in another: it must not keep the memory of those beside it.
            rare = [str(number % 5)]
            yield pa.table({"p": rare + ["common"] * 9_999, "x": pa.array(range(10_000))})

    adds = write(store, batches(), target_file_bytes=4_000_000, compression="none")
    assert sum(json.loads(add.stats or "")["numRecords"] for add in adds) == 3_000_000
    assert len(adds) >= 6
    assert max(used) < 12_000_000, "of 57 million bytes"


def test_open_partitions_are_bounded(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "MAX_OPEN_PARTITIONS", 3)
    scattered = rows(p=[str(number % 7) for number in range(700)], x=list(range(700)))
    adds = write(store, scattered.to_batches(max_chunksize=70))
    assert len(adds) >= 7
    assert len({add.path for add in adds}) == len(adds)
    read = read_files(store, add_rows(adds), schema=SCHEMA, partition_columns=["p"])
    assert sorted(read.column("x").to_pylist()) == list(range(700))


@pytest.mark.parametrize("target", [64 * 1024, 128 * 1024 * 1024])
def test_a_file_ends_when_it_has_as_many_rows_as_are_allowed(store: MemoryStore, target: int) -> None:
    data = rows(p=[str(number % 3) for number in range(70_000)], x=list(range(70_000)))
    adds = write(store, data.to_batches(max_chunksize=999), max_file_rows=7_000, target_file_bytes=target)
    counts = [json.loads(add.stats or "{}")["numRecords"] for add in adds]
    assert max(counts) == 7_000
    if target > 10**6:
        assert sorted(counts) == [2_333, 2_333, 2_334, *[7_000] * 9]
    read = read_files(store, add_rows(adds), schema=SCHEMA, partition_columns=["p"])
    assert sorted(read.column("x").to_pylist()) == list(range(70_000))
    assert len(write(store, rows(p=["a"] * 5, x=[1, 2, 3, 4, 5]), max_file_rows=1)) == 5


def test_many_partition_columns_of_many_values_stay_apart(store: MemoryStore) -> None:
    count = 300
    data = pa.table({f"p{index}": [f"{index}-{row}" for row in range(count)] for index in range(5)} | {"x": list(range(count))})
    schema = from_arrow(data.schema)
    names = [f"p{index}" for index in range(5)]
    adds = write(store, data, schema=schema, partition_columns=tuple(names))
    assert len(adds) == count
    assert rows_of(read_files(store, add_rows(adds), schema=schema, partition_columns=tuple(names))) == rows_of(data)


def test_names_of_two_tasks_never_meet(store: MemoryStore) -> None:
    paths = [add.path for label in ("0-1", "0-2", "") for add in write(store, rows(p=["a"], x=[1]), label=label)]
    assert len(set(paths)) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "a/b"}, "'a/b'"),
        ({"transaction_id": "a b"}, "'a b'"),
        ({"compression": "zip"}, "'zip'.*zstd"),
        ({"target_file_bytes": 0}, "target_file_bytes is 0"),
    ],
)
def test_odd_options_are_refused(store: MemoryStore, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        write(store, rows(p=["a"], x=[1]), **options)


def test_a_null_in_a_partition_column_that_is_not_null_is_refused(store: MemoryStore) -> None:
    strict = StructType([StructField("p", PrimitiveType("string"), nullable=False), *SCHEMA.fields[1:]])
    for value in (None, ""):
        with pytest.raises(SchemaMismatch, match="'p' is NOT NULL"):
            write(store, rows(p=pa.array(["a", value]), x=[1, 2]), schema=strict)
    assert keys(store) == []


def test_the_check_sees_fitted_rows_before_anything_is_written(store: MemoryStore) -> None:
    def check(table: pa.Table) -> None:
        assert table.schema.names == ["p", "x"]
        assert keys(store) == []
        raise ConstraintViolated("x is too small")

    with pytest.raises(ConstraintViolated):
        write(store, rows(X=[1], P=["a"]), check=check)


@pytest.mark.parametrize("target", [100_000, 10_000_000])
def test_a_write_that_fails_leaves_nothing(store: MemoryStore, target: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "MAX_OPEN_PARTITIONS", 1)

    def batches() -> Iterator[pa.Table]:
        for start in range(0, 200_000, 10_000):
            yield pa.table({"p": ["a", "b"] * 5_000, "x": pa.array(range(start, start + 10_000))})
        yield pa.table({"p": ["a"], "wrong": [1]})

    with pytest.raises(SchemaMismatch, match="'wrong'"):
        write(store, batches(), target_file_bytes=target)
    assert keys(store) == []


def test_a_store_that_fails_midway_is_left_clean(store: MemoryStore) -> None:
    store.disk.fail_before("put", "p=c/*")
    with pytest.raises(StorageUnavailable):
        write(store, rows(p=["a", "b", "c", "d"], x=[1, 2, 3, 4]))
    assert keys(store) == []
