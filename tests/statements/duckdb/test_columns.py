"""Columns that are added and changed, namespaces, comments, and tables like others."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sluice

from .conftest import Warehouse


@pytest.fixture
def table(warehouse: Warehouse) -> sluice.Table:
    warehouse.sql(
        "CREATE TABLE sales.t (id BIGINT, s STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<v: INT>>) USING sluice",
        "INSERT INTO sales.t SELECT 1, named_struct('a', 1), array(named_struct('x', 2)), map('k', named_struct('v', 3))",
    )
    return warehouse.catalog.open("sales.t")


def test_columns_are_added_at_any_depth_and_place(warehouse: Warehouse, table: sluice.Table) -> None:
    warehouse.sql(
        "ALTER TABLE sales.t ADD COLUMNS (name STRING COMMENT 'n' AFTER id, s.b DOUBLE FIRST, l.element.y DATE, m.value.w INT)",
        "ALTER TABLE sales.t ADD COLUMN IF NOT EXISTS name STRING",
        "INSERT INTO sales.t (id, name) VALUES (2, 'two')",
    )
    assert table.refresh().schema.names == ["id", "name", "s", "l", "m"]
    assert table.snapshot().to_arrow(where="id = 1").to_pylist() == [
        {"id": 1, "name": None, "s": {"b": None, "a": 1}, "l": [{"x": 2, "y": None}], "m": [("k", {"v": 3, "w": None})]}
    ]
    assert [entry.operation for entry in table.history(2)] == ["WRITE", "ADD COLUMNS"]
    assert warehouse.rows("SELECT id, name FROM sales.t VERSION AS OF 2 WHERE name IS NULL") == [(1, None)]


def test_columns_come_from_arrow_too(table: sluice.Table) -> None:
    table.add_columns(
        [sluice.NewColumn(pa.field("at", pa.timestamp("us")), first=True), sluice.NewColumn(pa.field("w", pa.int8()), ("s",))]
    )
    assert str(table.struct.fields[0]) == "at: timestamp_ntz"
    assert "timestampNtz" in table.detail().features
    assert table.alter_columns([sluice.ColumnChange(("at",), after="id")]) is not None
    assert table.alter_columns([sluice.ColumnChange(("at",), after="id", nullable=True)]) is None
    assert table.struct.names[:2] == ("id", "at")


def test_columns_are_changed(warehouse: Warehouse, table: sluice.Table) -> None:
    warehouse.sql(
        "ALTER TABLE sales.t ALTER COLUMN s.a COMMENT 'inner', id COMMENT 'the id'",
        "ALTER TABLE sales.t CHANGE COLUMN id id BIGINT COMMENT 'it' AFTER s",
        "ALTER TABLE sales.t ALTER COLUMN id SET NOT NULL",
        "ALTER TABLE sales.t ALTER COLUMN id TYPE BIGINT",
    )
    assert [str(each) for each in table.refresh().struct.fields[:2]] == ["s: struct<a: integer>", "id: long NOT NULL"]
    assert table.struct.named("id").metadata == {"comment": "it"}
    version = table.version
    with pytest.raises(sluice.errors.SluiceError, match="id"):
        warehouse.sql("INSERT INTO sales.t (s) VALUES (NULL)")
    warehouse.sql("ALTER TABLE sales.t ALTER COLUMN id DROP NOT NULL", "INSERT INTO sales.t (id) VALUES (NULL)")
    with pytest.raises(sluice.errors.ConstraintViolated, match="column id cannot become NOT NULL"):
        warehouse.sql("ALTER TABLE sales.t ALTER COLUMN id SET NOT NULL")
    assert table.refresh().version == version + 2


def test_a_column_is_required_of_rows_that_are_added_meanwhile(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.tables.manage import columns

    real = columns._check_no_nulls

    def checked(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        table.append(pa.table({"id": pa.array([None], pa.int64())}))

    monkeypatch.setattr(columns, "_check_no_nulls", checked)
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.alter_columns([columns.ColumnChange(("id",), nullable=False)])
    assert table.refresh().struct.named("id").nullable


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ADD COLUMN id INT", "there is a column id already"),
        ("ADD COLUMN s.A INT", "there is a column s.A already"),
        ("ADD COLUMN q INT NOT NULL", "column q is NOT NULL, but the rows that are there have no value"),
        ("ADD COLUMN q INT DEFAULT 3", "column q has a DEFAULT, which the rows that are there do not get"),
        ("ADD COLUMN q BIGINT GENERATED ALWAYS AS (id)", "column q is GENERATED, but the rows that are there"),
        ("ADD COLUMN id.x INT", "id is long, which has no fields"),
        ("ADD COLUMN q INT AFTER nothing", "column 'nothing' is not in the table"),
        ("ADD COLUMN `a b` INT", "which Delta does not allow"),
        ("ALTER COLUMN nothing COMMENT 'x'", "column 'nothing' is not in the table; its columns are id, s, l, m"),
        ("ALTER COLUMN s.a SET NOT NULL", "only columns of the table itself"),
        ("ALTER COLUMN id TYPE INT", "to make it int needs the table feature typeWidening"),
        ("ALTER COLUMN id SET DEFAULT 'x'", "the DEFAULT of column 'id', 'x', cannot be used"),
        ("CHANGE COLUMN id number BIGINT", "RENAME COLUMN needs the table feature columnMapping"),
        ("ALTER COLUMN id", "expected COMMENT, SET NOT NULL"),
        ("RENAME COLUMN id TO x", "needs column mapping"),
        ("CLUSTER BY AUTO", "sluice does not choose the columns by itself"),
    ],
)
def test_changes_that_cannot_be_are_refused(warehouse: Warehouse, table: sluice.Table, change: str, message: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=message.replace("...", r"\.\.\.")):
        warehouse.sql(f"ALTER TABLE sales.t {change}")
    assert table.refresh().version == 1


def test_a_table_like_another_one(warehouse: Warehouse, table: sluice.Table) -> None:
    warehouse.sql(
        "ALTER TABLE sales.t ADD CONSTRAINT positive CHECK (id > 0)",
        "COMMENT ON TABLE sales.t IS 'all of them'",
        "COMMENT ON COLUMN sales.t.s.a IS 'inner'",
        "CREATE TABLE sales.u LIKE sales.t TBLPROPERTIES (owner = 'me')",
        "CREATE TABLE IF NOT EXISTS sales.u LIKE sales.t",
    )
    like = warehouse.catalog.open("sales.u")
    assert (like.struct, like.version) == (table.refresh().struct, 0)
    assert (like.properties["owner"], like.properties["delta.constraints.positive"]) == ("me", "id > 0")
    assert warehouse.catalog.comment("sales.u") == "all of them"
    assert warehouse.rows("SELECT count(*) FROM sales.u") == [(0,)]
    warehouse.sql("COMMENT ON TABLE sales.u IS NULL")
    assert warehouse.catalog.comment("sales.u") is None


def test_namespaces(warehouse: Warehouse) -> None:
    warehouse.sql(
        "CREATE SCHEMA shop COMMENT 'c' WITH DBPROPERTIES (owner = 'me')",
        "CREATE NAMESPACE IF NOT EXISTS shop",
        f"CREATE DATABASE far LOCATION '{warehouse.folder}/far'",
        "COMMENT ON NAMESPACE shop IS 'the shop'",
    )
    found = warehouse.catalog.namespace("shop")
    assert (found.comment, dict(found.properties)) == ("the shop", {"owner": "me"})
    assert warehouse.rows("SHOW NAMESPACES LIKE 's*'") == [("sales",), ("shop",)]
    with pytest.raises(sluice.errors.NamespaceExists):
        warehouse.sql("CREATE NAMESPACE shop")
    with pytest.raises(sluice.errors.InvalidRequest, match=r"column 15: a\.b has 2 parts"):
        warehouse.sql("CREATE SCHEMA a.b")
    warehouse.sql("CREATE TABLE shop.t (id INT) USING sluice")
    with pytest.raises(sluice.errors.NamespaceNotEmpty):
        warehouse.sql("DROP SCHEMA shop")
    warehouse.sql("DROP TABLE shop.t", "DROP SCHEMA shop", "DROP SCHEMA IF EXISTS shop")
    with pytest.raises(sluice.errors.NamespaceNotFound):
        warehouse.sql("DROP NAMESPACE shop")
