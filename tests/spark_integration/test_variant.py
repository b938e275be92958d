"""Variants in Spark: read and written by Spark itself and by Python tasks, and kept by statements that change rows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import VariantType

import sluice
from sluice import errors
from sluice.delta import DeltaTable
from sluice.spark_integration import writing
from sluice.spark_integration.scan import read as reading
from sluice.storage.schema.datatypes import TO_ARROW
from tests.fixtures.variants import NUMBER, OBJECT

from .conftest import Place, configured, is_native, refused

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("v", TO_ARROW["variant"]), ("l", pa.list_(TO_ARROW["variant"]))])
ROWS: list[dict[str, Any]] = [
    {"id": 1, "v": NUMBER, "l": [OBJECT, None]},
    {"id": 2, "v": None, "l": None},
    {"id": 3, "v": OBJECT, "l": [NUMBER]},
]
TEXTS = [(1, "1", '[{"a":2},null]'), (2, None, None), (3, '{"a":2}', "[1]")]


NESTED = pa.struct([("a", pa.int64()), ("x", TO_ARROW["variant"])])
WIDE = pa.schema([*SCHEMA, ("s", NESTED), ("m", pa.map_(pa.string(), TO_ARROW["variant"]))])
WIDE_ROWS: list[dict[str, Any]] = [
    {**ROWS[0], "s": {"a": 1, "x": OBJECT}, "m": [("k", NUMBER), ("j", None)]},
    {**ROWS[1], "s": None, "m": None},
    {**ROWS[2], "s": {"a": 3, "x": None}, "m": []},
]
NESTED_TEXTS = [(1, '{"a":1,"x":{"a":2}}', '{"k":1,"j":null}'), (2, None, None), (3, '{"a":3}', "{}")]


def texts(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.selectExpr("id", "to_json(v)", "to_json(l)").collect())


def made(place: Place, **properties: str) -> sluice.Table:
    table = place.create(SCHEMA, properties=properties)
    table.append(pa.Table.from_pylist(ROWS, SCHEMA))
    return table


@pytest.mark.costly
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_variants_itself_and_by_tasks(place: Place, monkeypatch: pytest.MonkeyPatch, vectorized: str) -> None:
    place.create(WIDE).append(pa.Table.from_pylist(WIDE_ROWS, WIDE))
    with configured(place.spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        frame = place.scan()
        assert is_native(frame)
        assert isinstance(frame.schema["v"].dataType, VariantType)
        assert texts(frame) == TEXTS
        assert frame.where("variant_get(v, '$.a', 'int') = 2").count() == 1
    monkeypatch.setattr(reading, "why_not_native", lambda *_: "the test wants tasks")
    by_tasks = place.scan()
    assert not is_native(by_tasks)
    assert isinstance(by_tasks.schema["v"].dataType, VariantType)
    assert texts(by_tasks) == TEXTS
    nested = sorted(tuple(row) for row in by_tasks.selectExpr("id", "to_json(s)", "to_json(m)").collect())
    assert nested == NESTED_TEXTS


@pytest.mark.parametrize("way", ["Spark", "tasks", "data source"])
def test_spark_writes_variants_in_one_piece(place: Place, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    table = place.create(SCHEMA)
    frame = place.spark.sql(
        "SELECT id, parse_json(v) AS v, transform(l, x -> parse_json(x)) AS l FROM VALUES "
        "(1L, '1', array('{\"a\": 2}', NULL)), (2L, NULL, NULL), (3L, '{\"a\": 2}', array('1')) AS t (id, v, l)"
    )
    if way == "data source":
        place.write(frame)
    else:
        if way == "tasks":
            monkeypatch.setattr(writing, "written_by_spark", lambda *_: "the test wants tasks")
        with sluice.transaction(place.spark, table) as part:
            part[table].append(frame)
    assert table.refresh().snapshot().to_arrow().sort_by("id").to_pylist() == ROWS
    assert texts(place.scan()) == TEXTS
    for each in table.snapshot().raw.files["path"].to_pylist():
        file = pq.ParquetFile(f"{place.location}/{each}")
        assert {part.name for part in file.schema_arrow.field("v").type.fields} == {"value", "metadata"}


@pytest.mark.costly
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_statements_keep_variants_and_set_them(place: Place, vectors: str) -> None:
    table = made(place, **{"delta.enableDeletionVectors": vectors})

    def sql(text: str) -> None:
        sluice.sql(place.spark, text.replace("<t>", f"sluice.`{place.location}`"), coordinator=place.coordinator)

    sql("UPDATE <t> SET id = 11 WHERE id = 1")
    sql("DELETE FROM <t> WHERE id = 2")
    place.spark.sql("SELECT 3L AS id, 30L AS n UNION ALL SELECT 4L, 4L").createOrReplaceTempView("variant_source")
    sql(
        "MERGE INTO <t> AS t USING variant_source AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.n "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, parse_json('1'))"
    )
    expected = [{"id": 4, "v": NUMBER, "l": None}, {**ROWS[0], "id": 11}, {**ROWS[2], "id": 30}]
    assert table.refresh().snapshot().to_arrow().sort_by("id").to_pylist() == expected
    DeltaTable.forPath(place.spark, place.location, coordinator=place.coordinator).update("id = 11", {"v": "parse_json('{\"a\": 2}')"})
    table.refresh().compact()
    assert texts(place.scan()) == [(4, "1", None), (11, '{"a":2}', TEXTS[0][2]), (30, '{"a":2}', "[1]")]


def test_sql_makes_tables_of_variants(place: Place) -> None:
    sluice.sql(place.spark, f"CREATE TABLE sluice.`{place.location}` (id BIGINT, v VARIANT)", coordinator=place.coordinator)
    assert str(place.table().struct) == "struct<id: long, v: variant>"
    sluice.sql(place.spark, f"INSERT INTO sluice.`{place.location}` SELECT 1L, parse_json('1')", coordinator=place.coordinator)
    assert place.rows() == [{"id": 1, "v": NUMBER}]


def statement(place: Place, text: str) -> DataFrame:
    return sluice.sql(place.spark, text.replace("<t>", f"sluice.`{place.location}`"), coordinator=place.coordinator)


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_variants_inside_of_columns_in_every_operation(place: Place, tmp_path: Path, mode: str) -> None:
    table = place.create(WIDE, properties={"delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"})
    table.append(pa.Table.from_pylist(WIDE_ROWS, WIDE))
    for frame in (place.scan(), place.load()):
        shown = sorted(tuple(row) for row in frame.selectExpr("id", "to_json(s)", "to_json(m)").collect())
        assert shown == NESTED_TEXTS
    statement(place, "UPDATE <t> SET s.a = 11, v = s.x WHERE try_variant_get(v, '$', 'int') = 1")
    statement(place, "DELETE FROM <t> WHERE variant_get(v, '$.a', 'int') = 2 AND id = 3")
    place.spark.sql("SELECT 2L AS id UNION ALL SELECT 4L").createOrReplaceTempView("nested_source")
    statement(
        place,
        "MERGE INTO <t> AS t USING nested_source AS s ON t.id = s.id AND t.v IS NULL "
        "WHEN MATCHED THEN UPDATE SET v = parse_json('1') WHEN NOT MATCHED THEN INSERT (id, m) VALUES (s.id, map('k', parse_json('1')))",
    )
    new = {"id": 4, "v": None, "l": None, "s": None, "m": [("k", NUMBER)]}
    expected = [{**WIDE_ROWS[0], "v": OBJECT, "s": {"a": 11, "x": OBJECT}}, {**WIDE_ROWS[1], "v": NUMBER}, new]
    table.refresh()
    assert table.snapshot().to_arrow().sort_by("id").to_pylist() == expected
    changes = place.load(readChangeFeed="true", startingVersion="2").selectExpr("_change_type", "id", "to_json(v)").collect()
    assert sorted(tuple(row) for row in changes if row["_change_type"] != "update_preimage") == [
        ("delete", 3, '{"a":2}'),
        ("insert", 4, None),
        ("update_postimage", 1, '{"a":2}'),
        ("update_postimage", 2, "1"),
    ]
    for how in ("SHALLOW", "DEEP"):
        statement(place, f"CREATE TABLE sluice.`{tmp_path}/{how}` {how} CLONE <t>")
        copy = sluice.read(place.spark, f"{tmp_path}/{how}", coordinator=place.coordinator)
        assert sorted(tuple(row) for row in copy.selectExpr("id", "to_json(v)").collect()) == [(1, '{"a":2}'), (2, "1"), (4, None)]
    statement(place, "ALTER TABLE <t> ADD COLUMNS (w VARIANT, n STRUCT<y: VARIANT>)")
    if mode != "none":
        statement(place, "ALTER TABLE <t> RENAME COLUMN v TO u")
        statement(place, "ALTER TABLE <t> DROP COLUMN l")
        assert place.scan().where("variant_get(u, '$.a', 'int') = 2").count() == 1
    added = place.spark.sql("SELECT 5L AS id, parse_json('1') AS w, array(parse_json('1')) AS more")
    place.write(added, mergeSchema="true")
    assert place.scan().where("id = 5").selectExpr("to_json(w)", "to_json(more)", "n IS NULL").collect() == [("1", "[1]", True)]
    evolving = "MERGE WITH SCHEMA EVOLUTION INTO <t> AS t USING (SELECT 5L AS id, parse_json('7') AS new) AS s ON t.id = s.id "
    statement(place, evolving + "WHEN MATCHED THEN UPDATE SET new = s.new")
    assert place.scan().where("new IS NOT NULL").selectExpr("id", "to_json(new)").collect() == [(5, "7")]
    statement(place, "RESTORE TABLE <t> TO VERSION AS OF 1")
    assert table.refresh().snapshot().to_arrow().sort_by("id").to_pylist() == WIDE_ROWS


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["none", "id"])
def test_streams_read_and_write_variants(place: Place, tmp_path: Path, mode: str) -> None:
    table = place.create(WIDE, properties={"delta.columnMapping.mode": mode})
    table.append(pa.Table.from_pylist(WIDE_ROWS, WIDE))
    copy = sluice.Table.create(tmp_path / "copy", WIDE, coordinator=place.coordinator)
    for _ in range(2):
        rows = place.spark.readStream.format("sluice").options(**place.options).load(place.location)
        writer = rows.writeStream.format("sluice").options(**place.options, checkpointLocation=str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(copy.location).awaitTermination()
        assert (
            copy.refresh().snapshot().to_arrow().sort_by("id").to_pylist()
            == table.refresh().snapshot().to_arrow().sort_by("id").to_pylist()
        )
        table.append(pa.Table.from_pylist([{"id": 4, "v": OBJECT}], WIDE))


@pytest.mark.costly
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_shredded_files_and_nothing_else_does(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectorized: str
) -> None:
    table = place.create(pa.schema([("id", pa.int64()), ("v", TO_ARROW["variant"])]))
    table.append(pa.table({"id": [1]}))
    [path] = Path(place.location).glob("*.parquet")
    with configured(place.spark, {"spark.sql.variant.writeShredding.enabled": "true", "spark.sql.variant.inferShreddingSchema": "true"}):
        rows = place.spark.range(3).selectExpr("id", "parse_json(to_json(named_struct('a', id, 'b', concat('x', id)))) AS v")
        rows.coalesce(1).write.parquet(str(tmp_path / "shredded"))
    [shredded] = (tmp_path / "shredded").glob("*.parquet")
    assert "typed_value" in [part.name for part in pq.ParquetFile(shredded).schema_arrow.field("v").type.fields]
    shutil.copy(shredded, path)
    with configured(place.spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        frame = place.scan()
        assert is_native(frame)
        assert sorted(row[0] for row in frame.selectExpr("to_json(v)").collect()) == [f'{{"a":{n},"b":"x{n}"}}' for n in range(3)]
        assert [row["id"] for row in frame.where("variant_get(v, '$.b', 'string') = 'x1'").collect()] == [1]
    monkeypatch.setattr(reading, "why_not_native", lambda *_: "the test wants tasks")
    by_tasks = place.scan()
    assert not is_native(by_tasks)
    assert "'v' is a shredded variant in the data, whose parts only Spark puts together" in refused(by_tasks.collect).message


def test_constraints_defaults_and_generated_columns_of_variants(place: Place) -> None:
    statement(
        place,
        "CREATE TABLE <t> (id BIGINT, v VARIANT DEFAULT parse_json('1'), g INT GENERATED ALWAYS AS (variant_get(v, '$', 'int')), "
        "CONSTRAINT there CHECK (v IS NOT NULL))",
    )
    statement(place, "INSERT INTO <t> (id) VALUES (1)")
    statement(place, "INSERT INTO <t> (id, v) SELECT 2, CAST(5 AS VARIANT)")
    assert sorted(tuple(row) for row in place.scan().selectExpr("id", "to_json(v)", "g").collect()) == [(1, "1", 1), (2, "5", 5)]
    with pytest.raises(errors.ConstraintViolated, match="there"):
        statement(place, "INSERT INTO <t> (id, v) VALUES (3, NULL)")
    with pytest.raises(
        errors.UnsupportedFeature, match=r"sluice cannot enforce the constraint small .* does not evaluate the function variant_get"
    ):
        statement(place, "ALTER TABLE <t> ADD CONSTRAINT small CHECK (variant_get(v, '$', 'int') < 9)")
    with pytest.raises(errors.UnsupportedFeature, match="write with Spark"):
        place.table().append(pa.table({"id": [3], "v": [NUMBER]}))
    for bad in ("INSERT INTO <t> (id, v) VALUES (3, 'x')", "INSERT INTO <t> (id, v) VALUES (3, 5)"):
        with pytest.raises(errors.SchemaMismatch, match="cannot be stored in column 'v' of type variant; cast it"):
            statement(place, bad)
    assert place.table().version == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE TABLE <t> (id BIGINT, v VARIANT) PARTITIONED BY (v)", "'v' is variant; only columns of primitive types"),
        ("CREATE TABLE <t> (id BIGINT, v VARIANT) CLUSTER BY (v)", "cannot be clustered by v of type variant"),
        ("CREATE TABLE <t> (id BIGINT, v VARIANT GENERATED ALWAYS AS (parse_json('1')))", "Delta generates no variants"),
        ("CREATE TABLE <t> (id BIGINT, v VARIANT GENERATED ALWAYS AS IDENTITY)", "'v' is variant, and its values are BIGINT"),
        ("CREATE TABLE <t> (v VARIANT) TBLPROPERTIES ('delta.feature.variantShredding' = 'supported')", "variantShredding"),
        ("CREATE TABLE <t> (v VARIANT) TBLPROPERTIES ('delta.enableVariantShredding' = 'true')", "sluice writes variants in one piece"),
    ],
)
def test_sql_refuses_variants_where_delta_does(place: Place, text: str, said: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=re.escape(said)):
        statement(place, text)
