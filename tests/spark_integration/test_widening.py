"""Spark reads files from before and after a type became wider in one scan, and writes that change the schema make types wider."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice import ColumnChange
from sluice.delta import DeltaTable
from sluice.storage.pruning.predicate import Predicate
from tests.fixtures.widenings import NARROW, PAIRS, VALUES, WIDE, nested, row, wide

from .conftest import Place, arrow, by_content, configured, is_native, refused

pytestmark = pytest.mark.spark
WIDENS = {"delta.enableTypeWidening": "true"}
NARROWER = pa.schema([("id", pa.int32()), ("v", pa.int32()), ("d", pa.date32()), ("s", pa.struct([("x", pa.int8())]))])


def retype(table: sluice.Table, path: str, kind: pa.DataType) -> None:
    table.alter_columns([ColumnChange(tuple(path.split(".")), type=kind)])


def rows(which: int, numbers: range) -> list[dict[str, Any]]:
    """Rows with a column and a nested one for each pair, of the narrower types (0) or the wider ones (1)."""
    made: list[dict[str, Any]] = []
    for number in numbers:
        columns: dict[str, Any] = {"id": number}
        for place, pair in enumerate(PAIRS):
            value = [*VALUES[pair[0]], None][number % 4]
            value = value if value is None else wide(value, pair[which])
            columns |= {f"c{place}": value, f"n{place}": row(value)}
        made.append(columns)
    return made


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_one_scan_reads_all_pairs_from_before_and_after(spark: SparkSession, place: Place, vectorized: str) -> None:
    fields = [field for n, (old, _) in enumerate(PAIRS) for field in ((f"c{n}", NARROW[n]), (f"n{n}", nested(old)))]
    table = place.create(pa.schema([("id", pa.int64()), *fields]), properties=WIDENS)
    table.append(pa.Table.from_pylist(rows(0, range(4)), table.schema))
    parts = ("x", "l.element", "m.key", "m.value")
    changes = [ColumnChange((f"c{n}",), type=kind) for n, kind in enumerate(WIDE)]
    changes += [ColumnChange((f"n{n}", *part.split(".")), type=kind) for n, kind in enumerate(WIDE) for part in parts]
    table.alter_columns(changes)
    table.append(pa.Table.from_pylist(rows(1, range(4, 8)), table.schema))
    expected = by_content(pa.Table.from_pylist(rows(1, range(8)), table.schema))
    with configured(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        frame = place.scan()
        assert is_native(frame)
        assert by_content(arrow(frame, table.struct)) == expected
    if vectorized == "true":
        by_python = spark.read.format("sluice").options(coordinator=place.coordinator).schema(frame.schema)
        assert by_content(arrow(by_python.load(place.location), table.struct)) == expected


@pytest.mark.costly
@pytest.mark.parametrize("partitioned", [False, True])
def test_conditions_skip_no_row_group_or_file_with_matching_rows(place: Place, tmp_path: Path, partitioned: bool) -> None:
    kept = [
        number
        for number, (old, new) in enumerate(PAIRS)
        if (old, new) not in {("byte", "integer"), ("short", "integer"), ("short", "long")}
    ]
    names = [f"c{number}" for number in kept]
    schema = pa.schema([("id", pa.int64()), *((name, NARROW[number]) for name, number in zip(names, kept, strict=True))])
    columns = [{each: values[each] for each in schema.names} for values in rows(0, range(8))]
    narrow = pa.Table.from_pylist(columns, schema)
    if partitioned:
        table = place.create(schema, partition_by=names, properties=WIDENS)
        table.append(narrow)
    else:
        small = deltalake.WriterProperties(max_row_group_size=1)
        deltalake.write_deltalake(tmp_path / "t", narrow, writer_properties=small)
        table = sluice.Table.attach(tmp_path / "t", coordinator=place.coordinator)
        table.set_properties(WIDENS)
    table.alter_columns([ColumnChange((name,), type=WIDE[number]) for name, number in zip(names, kept, strict=True)])
    columns = [{each: values[each] for each in table.schema.names} for values in rows(1, range(4, 8))]
    table.append(pa.Table.from_pylist(columns, table.schema))
    everything = table.snapshot().to_arrow()
    frame = sluice.read(place.spark, table.location, coordinator=place.coordinator)
    assert is_native(frame)
    found, expected = [], []
    for name, number in zip(names, kept, strict=True):
        old, new = PAIRS[number]
        literals = [wide(value, new) for value in VALUES[old][:2]]
        for operation, literal in (("EqualTo", literals[0]), ("GreaterThan", 0.1 if new == "double" else literals[1])):
            condition = Predicate.from_filters([(operation, (name,), literal)], table.struct)
            value = F.expr(f"TIMESTAMP_NTZ '{literal}'") if new == "timestamp_ntz" else F.lit(literal)
            matching = frame.where(F.col(name) == value if operation == "EqualTo" else F.col(name) > value)
            found.append(matching.select(F.lit(f"{name} {operation}").alias("what"), "id"))
            expected += [(f"{name} {operation}", each) for each in everything.filter(condition.mask(everything))["id"].to_pylist()]
    union = found[0]
    for each in found[1:]:
        union = union.unionAll(each)
    assert sorted((each["what"], each["id"]) for each in union.collect()) == sorted(expected)


@pytest.fixture
def narrower(place: Place) -> sluice.Table:
    table = place.create(NARROWER, properties=WIDENS)
    table.append(pa.Table.from_pylist([{"id": 1, "v": 1, "d": dt.date(2024, 1, 1), "s": {"x": 1}}], NARROWER))
    return table


def wider(place: Place) -> DataFrame:
    return place.spark.sql("SELECT 5000000000L AS id, 2.5D AS v, TIMESTAMP_NTZ '2024-01-02 03:04:05' AS d, named_struct('x', 300) AS s")


WIDER = ["long", "integer", "timestamp_ntz", "struct<x: integer>"]
NEW_ROW = {"id": 5_000_000_000, "v": 2, "d": dt.datetime.combine(dt.date(2024, 1, 2), dt.time(3, 4, 5)), "s": {"x": 300}}
OLD_ROW = {"id": 1, "v": 1, "d": dt.datetime.combine(dt.date(2024, 1, 1), dt.time()), "s": {"x": 1}}


@pytest.mark.parametrize("way", ["save", "insert", "overwrite", "transaction", "data source"])
def test_writes_that_change_the_schema_make_types_wider(place: Place, narrower: sluice.Table, way: str) -> None:
    frame = wider(place)
    if way == "save":
        place.write(frame, mergeSchema="true")
    elif way == "overwrite":
        place.write(frame, "overwrite", mergeSchema="true")
    elif way == "insert":
        frame.createOrReplaceTempView("wider")
        sluice.sql(
            place.spark, f"INSERT WITH SCHEMA EVOLUTION INTO sluice.`{place.location}` SELECT * FROM wider", coordinator=place.coordinator
        )
    elif way == "transaction":
        with sluice.transaction(place.spark, narrower) as part:
            part[narrower].append(frame, merge_schema=True)
    else:
        whole = frame.withColumn("v", F.lit(2))
        with configured(place.spark, {"spark.sql.session.timeZone": "UTC"}):
            whole.write.format("sluice").mode("append").options(coordinator=place.coordinator, mergeSchema="true").save(place.location)
    table = place.table()
    assert [str(each.type) for each in table.struct.fields] == WIDER, "a whole number gets no fraction by itself"
    assert place.rows() == ([NEW_ROW] if way == "overwrite" else [OLD_ROW, NEW_ROW])


def test_without_a_change_of_the_schema_values_are_cast(place: Place, narrower: sluice.Table) -> None:
    narrow = place.spark.sql("SELECT 7L AS id, 2.5D AS v, TIMESTAMP_NTZ '2024-01-02 03:04:05' AS d, named_struct('x', 3) AS s")
    place.write(narrow)
    assert place.table().schema == NARROWER
    narrower.set_properties({"delta.enableTypeWidening": "false"})
    place.write(narrow.drop("s"), mergeSchema="true")
    assert place.table().schema == NARROWER


@pytest.mark.parametrize("clauses", ["all", "named", "columns", "setting"])
def test_merge_with_schema_evolution_makes_types_wider(place: Place, narrower: sluice.Table, clauses: str) -> None:
    source = (
        wider(place)
        .withColumn("v", F.lit(2))
        .union(place.spark.sql("SELECT 1L, 9, TIMESTAMP_NTZ '2024-01-01 00:00:01', named_struct('x', 1)"))
    )
    target = DeltaTable.forPath(place.spark, place.location, coordinator=place.coordinator)
    merge = target.alias("t").merge(source.alias("s"), "t.id = s.id")
    if clauses == "all":
        merge.withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    elif clauses == "named":
        values = {name: f"s.{name}" for name in ("id", "v", "d", "s")}
        merge.withSchemaEvolution().whenMatchedUpdate(set={"v": "s.v", "d": "s.d"}).whenNotMatchedInsert(values=values).execute()
    elif clauses == "columns":
        frame, named = target.toDF(), source.alias("s")
        merge = target.merge(named, frame["id"] == F.col("s.id")).withSchemaEvolution()
        merge.whenMatchedUpdate(frame["v"] == 1, {"v": F.col("s.v"), "d": F.col("s.d")}).whenNotMatchedInsertAll().execute()
    else:
        with configured(place.spark, {"spark.databricks.delta.schema.autoMerge.enabled": "true"}):
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    table = place.table()
    assert [str(each.type) for each in table.struct.fields] == WIDER
    matched = {**OLD_ROW, "v": 9, "d": dt.datetime.combine(dt.date(2024, 1, 1), dt.time(0, 0, 1))}
    assert place.rows() == by_content(pa.Table.from_pylist([matched, NEW_ROW], table.schema))
    assert table.history(limit=1)[0].operation == "MERGE"


def test_merge_without_evolution_and_columns_that_others_depend_on(place: Place, narrower: sluice.Table) -> None:
    target = DeltaTable.forPath(place.spark, place.location, coordinator=place.coordinator)
    source = place.spark.sql("SELECT 2L AS id, 2L AS v, DATE '2024-01-01' AS d, named_struct('x', 1) AS s").alias("s")
    target.alias("t").merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()
    assert place.table().schema == NARROWER
    narrower.set_properties({"delta.constraints.small": "v < 10"})
    merge = target.alias("t").merge(source, "t.id = s.id").withSchemaEvolution().whenNotMatchedInsertAll()
    assert "the type of column v cannot change: the constraint small" in refused(merge.execute).message


def test_streams_that_change_the_schema_make_types_wider(place: Place, narrower: sluice.Table, tmp_path: Path) -> None:
    wider(place).withColumn("v", F.lit(2)).write.parquet(str(tmp_path / "in"))
    rows = place.spark.readStream.schema(place.spark.read.parquet(str(tmp_path / "in")).schema).parquet(str(tmp_path / "in"))
    writer = rows.writeStream.format("sluice").options(
        coordinator=place.coordinator, mergeSchema="true", checkpointLocation=str(tmp_path / "c")
    )
    writer.trigger(availableNow=True).start(place.location).awaitTermination()
    assert [str(each.type) for each in place.table().struct.fields] == WIDER
    assert place.rows() == [OLD_ROW, NEW_ROW]
