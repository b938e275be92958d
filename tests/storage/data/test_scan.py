from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import AddFile, DeletionVector
from sluice.storage.actions.filetable import add_rows
from sluice.storage.data.datafiles import FileFormat, write_files
from sluice.storage.errors import Corrupt, InvalidRequest, MissingObject, PredicateError, UnsupportedFeature
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.partitions import uri_to_path
from sluice.storage.schema.schema import ArrayType, MapType, PrimitiveType, StructField, StructType, from_arrow, to_arrow
from sluice.storage.stores.local import LocalStore
from sluice.storage.stores.location import normalise
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import ObjectStore
from tests.storage.data.reading import iter_files, parquet_of, read_files, row_groups_read, threads_left
from tests.storage.strategies import comparable, rows_of, schemas, tables, unhurried

LONG = PrimitiveType("long")
SCHEMA = StructType([StructField("x", LONG), StructField("p", PrimitiveType("date")), StructField("s", PrimitiveType("string"))])


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    if request.param == "local":
        yield LocalStore(normalise(tmp_path / "a b%41"))
        return
    made = MemoryStore.open(uuid.uuid4().hex)
    yield made
    made.forget()


def write(
    store: ObjectStore, data: pa.Table, schema: StructType = SCHEMA, partition_columns: Sequence[str] = ("p",), **options: Any
) -> pa.Table:
    layout = FileFormat(schema, tuple(partition_columns), **options)
    adds = write_files(store, [data], layout, transaction_id=uuid.uuid4().hex)
    return add_rows(adds)


def read(store: ObjectStore, files: pa.Table, schema: StructType = SCHEMA, where: str | None = None, **options: Any) -> pa.Table:
    predicate = None if where is None else Predicate.parse(where, schema)
    call: dict[str, Any] = {"schema": schema, "partition_columns": ["p"], "predicate": predicate, **options}
    table = read_files(store, files, **call)
    batches = list(iter_files(store, files, **call))
    assert sum(batch.num_rows for batch in batches) == table.num_rows
    if table.num_columns:
        again = pa.Table.from_batches(batches, schema=table.schema)
        assert [comparable(row) for row in again.to_pylist()] == [comparable(row) for row in table.to_pylist()]
    return table


def numbers(start: int, stop: int, day: Any = 0) -> pa.Table:
    count = stop - start
    return pa.table(
        {
            "x": pa.array(range(start, stop), pa.int64()),
            "p": pa.array([day] * count, pa.date32()),
            "s": [str(n) for n in range(start, stop)],
        }
    )


def test_asked_columns_come_in_the_asked_order_and_case_does_not_matter(store: ObjectStore) -> None:
    files = write(store, numbers(0, 3))
    found = read(store, files, columns=["S", "p", "x"])
    assert found.schema.equals(pa.schema([to_arrow(SCHEMA).field(name) for name in ("s", "p", "x")]), check_metadata=True)
    assert read(store, files).schema.equals(to_arrow(SCHEMA), check_metadata=True)
    assert read(store, files, columns=["p"]).num_rows == 3
    assert read(store, files, columns=[]).num_rows == 3
    assert read(store, files, columns=[], where="x > 0 AND p IS NOT NULL").num_rows == 2
    assert read(store, files, columns=[], where="1 = 1").num_rows == 3
    assert read(store, files.slice(0, 0), columns=["x"]).schema == pa.schema([to_arrow(SCHEMA).field("x")])


def test_an_unknown_column_is_refused_by_name(store: ObjectStore) -> None:
    with pytest.raises(InvalidRequest, match="'y' is not in the table; its columns are x, p, s"):
        read(store, write(store, numbers(0, 1)), columns=["y"])


@unhurried
@given(st.data())
def test_a_filtered_read_is_a_read_and_a_filter(data: st.DataObject) -> None:
    made, partitions = data.draw(schemas(min_partitions=1))
    schema = StructType([*made.fields, StructField("x", LONG), StructField("f", PrimitiveType("double"))])
    table = data.draw(tables(schema))
    store = MemoryStore.open(uuid.uuid4().hex)
    try:
        files = write(store, table, schema, partitions)
        name = data.draw(st.sampled_from(schema.names))
        where = data.draw(
            st.sampled_from([f"`{name}` IS NULL", f"`{name}` IS NOT NULL", f"x > 0 OR `{name}` IS NULL", "f > 1.0E0", "NOT x = 1"])
        )
        predicate = Predicate.parse(where, schema)
        whole = read(store, files, schema, partition_columns=partitions)
        found = read(store, files, schema, where, partition_columns=partitions)
        assert rows_of(found) == rows_of(whole.filter(predicate.mask(whole)))
    finally:
        store.forget()


def many_row_groups(store: ObjectStore) -> pa.Table:
    """One file of ten row groups of a hundred rows each."""
    files = write(store, numbers(0, 1000))
    store.put(uri_to_path(files.column("path")[0].as_py()), parquet_of(numbers(0, 1000).drop_columns(["p"]), row_group_size=100))
    return files


@pytest.mark.parametrize(
    ("where", "groups", "rows"),
    [
        ("x BETWEEN 250 AND 260", [2], 11),
        ("x IN (5, 999)", [0, 9], 2),
        ("x = 5 AND p = DATE '1970-01-01'", [0], 1),
        ("x = 5 OR p = DATE '1970-01-01'", list(range(10)), 1000),
        ("x + 1 = 6", list(range(10)), 1),
    ],
)
def test_row_groups_that_cannot_match_are_not_read(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, where: str, groups: list[int], rows: int
) -> None:
    files = many_row_groups(store)
    seen = row_groups_read(monkeypatch)
    assert read(store, files, where=where).num_rows == rows
    assert seen == [groups]
    assert read(store, files, where=where, columns=[]).num_rows == rows


def test_a_predicate_that_cannot_be_evaluated_is_no_damage_of_the_file(store: ObjectStore) -> None:
    files = many_row_groups(store)
    for where in ("10 % (x - 5) = 1", "x = 1 / (year(p) - 1970)"):
        with pytest.raises(PredicateError, match="zero"):
            read(store, files, where=where)


def test_row_groups_are_not_judged_by_bounds_that_leave_out_nan(store: ObjectStore) -> None:
    schema = StructType([StructField("x", PrimitiveType("double"))])
    data = pa.table({"x": [0.0, float("nan")] * 2})
    files = write(store, data, schema, ())
    store.put(uri_to_path(files.column("path")[0].as_py()), parquet_of(data, row_group_size=2))
    assert read(store, files, schema, "x > 1.0E0", partition_columns=[]).num_rows == 2


def rewritten(store: ObjectStore, schema: StructType, content: pa.Table, **options: Any) -> pa.Table:
    """A file as another writer could have left it in a table of this schema."""
    data = parquet_of(content, **options)
    store.put("f.parquet", data)
    return add_rows([AddFile("f.parquet", {}, len(data), 0, True)])


def test_columns_and_nested_fields_that_a_file_lacks_are_null(store: ObjectStore) -> None:
    inner = StructType([StructField("a", LONG), StructField("b", PrimitiveType("string"))])
    nested = [StructField("s", inner), StructField("l", ArrayType(inner)), StructField("m", MapType(LONG, inner)), StructField("new", LONG)]
    schema = StructType(nested)
    old = pa.table(
        {
            "s": [{"a": 1}, None],
            "l": [[{"a": 2}, None], None],
            "m": pa.array([[(1, {"a": 3})], None], pa.map_(pa.int64(), pa.struct([("a", pa.int64())]))),
        }
    )
    found = read(store, rewritten(store, schema, old), schema, partition_columns=[])
    assert found.schema == to_arrow(schema)
    assert found.to_pylist() == [
        {"s": {"a": 1, "b": None}, "l": [{"a": 2, "b": None}, None], "m": [(1, {"a": 3, "b": None})], "new": None},
        {"s": None, "l": None, "m": None, "new": None},
    ]
    files = rewritten(store, schema, pa.table({"other": [1, 2]}))
    assert read(store, files, schema, "new IS NULL", partition_columns=[]).num_rows == 2


def test_files_of_older_writers_are_read_in_the_tables_types(store: ObjectStore) -> None:
    schema = StructType([StructField("T", PrimitiveType("timestamp")), StructField("n", LONG), StructField("s", PrimitiveType("string"))])
    moments = pa.array([0, 86_400_000_000 * 400_000], pa.timestamp("us"))
    old = pa.table({"t": moments, "n": pa.array([1, 2], pa.int32()), "s": pa.array([b"a", b"b"], pa.binary()).cast(pa.string())})
    for options in ({"use_deprecated_int96_timestamps": True}, {"row_group_size": 1}, {"coerce_timestamps": "ms"}):
        found = read(store, rewritten(store, schema, old, **options), schema, "t >= TIMESTAMP '1970-01-01 00:00:00Z'", partition_columns=[])
        assert found.schema == to_arrow(schema)
        assert found.column("T").cast(pa.int64()).to_pylist() == moments.cast(pa.int64()).to_pylist()


def test_column_names_with_dots_are_no_paths(store: ObjectStore) -> None:
    data = pa.table({"a.b": [1], "a": [{"b": 2, "c": 3}]})
    schema = from_arrow(data.schema)
    files = write(store, data, schema, ())
    for columns in (["a.b"], ["a"], ["a", "a.b"]):
        assert read(store, files, schema, columns=columns, partition_columns=[]).to_pylist() == data.select(columns).to_pylist()


def test_a_missing_file_is_named_with_its_version(store: ObjectStore) -> None:
    files = write(store, numbers(0, 1))
    path = files.column("path")[0].as_py()
    store.delete(uri_to_path(path))
    with pytest.raises(MissingObject, match=r"part-00000.* of version 7") as caught:
        read(store, files, version=7)
    assert (caught.value.path, caught.value.version) == (path, 7)
    with pytest.raises(MissingObject):
        list(iter_files(store, files, schema=SCHEMA, partition_columns=["p"]))


def test_a_file_that_makes_no_sense_is_named(store: ObjectStore) -> None:
    schema = StructType([StructField("x", LONG)])
    good = rewritten(store, schema, pa.table({"x": list(range(10_000))}))
    content = store.get("f.parquet")
    damaged = bytearray(content)
    damaged[100:200] = bytes(100)
    for data in (b"", b"no parquet", content[: len(content) // 2], bytes(damaged)):
        store.put("f.parquet", data)
        with pytest.raises(Corrupt, match=r"data file 'f\.parquet' cannot be read"):
            read(store, good, schema, partition_columns=[])
        with pytest.raises(Corrupt, match=r"data file 'f\.parquet' cannot be read"):
            list(iter_files(store, good, schema=schema, partition_columns=[]))
    store.put("f.parquet", parquet_of(pa.table({"x": ["no number"]})))
    with pytest.raises(Corrupt, match=r"data file 'f\.parquet' does not fit the table: column 'x' is long .* string in the data") as caught:
        read(store, good, schema, partition_columns=[])
    assert "the engine that wrote it" in caught.value.message
    assert "restore" not in caught.value.message, "a copy of the file would be the same"


def test_a_vector_that_is_gone_is_named(store: ObjectStore) -> None:
    vector = DeletionVector("u", "x" * 20, 10, 1)
    with pytest.raises(MissingObject, match=r"deletion_vector_.* is gone"):
        read(store, add_rows([AddFile("f.parquet", {}, 1, 0, True, deletion_vector=vector)]))


def test_absolute_paths_are_followed(store: ObjectStore, tmp_path: Path) -> None:
    files = write(store, numbers(0, 2))
    path = files.column("path")[0].as_py()
    scheme, _, place = store.location.partition("://")
    inside = f"{scheme}://{quote(place)}/{path}"
    assert read(store, files.set_column(0, "path", pa.array([inside]))).num_rows == 2
    if store.location.startswith("file:"):
        for spelled in (inside.replace("file://", "file:"), inside.removeprefix("file://")):
            assert read(store, files.set_column(0, "path", pa.array([spelled]))).num_rows == 2
        assert read(LocalStore(f"file://{tmp_path}/other"), files.set_column(0, "path", pa.array([inside]))).num_rows == 2
        with pytest.raises(MissingObject, match=r"data file 'file:///elsewhere/f.parquet' of .* is gone"):
            read(store, files.set_column(0, "path", pa.array(["file:///elsewhere/f.parquet"])))
    with pytest.raises(UnsupportedFeature, match=r"'abfss://elsewhere/f.parquet' lies outside .* where sluice does not reach it"):
        read(store, files.set_column(0, "path", pa.array(["abfss://elsewhere/f.parquet"])))


def test_batches_of_a_large_file_are_small_and_an_abandoned_scan_leaves_no_thread(store: ObjectStore) -> None:
    files = write(store, numbers(0, 300_000))
    batches = iter_files(store, pa.concat_tables([files] * 3), schema=SCHEMA, partition_columns=["p"])
    assert next(batches).num_rows <= 65_536
    batches.close()  # type: ignore[attr-defined]
    assert threads_left("sluice-scan") == []
