"""SHOW and DESCRIBE, with the columns that Spark and Delta Lake give them."""

from __future__ import annotations

import fnmatch
from typing import Any

from pyspark.sql import DataFrame

from ..delta.describing import described
from ..delta.metrics import detail, history
from ..delta.places import Place
from ..spark_integration.schemas import to_spark
from ..statements.tables import Describe, Show, ShowTables
from ..storage.errors import InvalidRequest, SluiceError
from ..tables.client.property_rules import check_asked
from ..tables.read.history import commit_infos
from ..tables.table import Table
from .asked import Asked
from .places import catalog_of, opened, title

__all__ = ["describe", "show", "show_tables"]

_CONSTRAINT = "delta.constraints."


def show(asked: Asked, statement: Show, place: Place) -> DataFrame:
    """SHOW COLUMNS, PARTITIONS, TBLPROPERTIES or CREATE TABLE."""
    table = opened(place)
    match statement.what:
        case "columns":
            return asked.spark.createDataFrame([(each,) for each in table.struct.names], "col_name string")
        case "partitions":
            return _partitions(asked, table)
        case "properties":
            return _shown_properties(asked, table, statement.key)
    text = _create_text(asked, title(statement.target) if place.name else f"sluice.`{table.location}`", table, place)
    return asked.spark.createDataFrame([(text,)], "createtab_stmt string")


def _partitions(asked: Asked, table: Table) -> DataFrame:
    """One row for each partition, a column for each partition column, in the table's types."""
    names = table.partition_columns
    if not names:
        raise InvalidRequest(f"{table.location} has no partitions", condition="INVALID_PARTITION_OPERATION.PARTITION_SCHEMA_IS_EMPTY")
    rows = table.snapshot().to_arrow(names)
    struct = to_spark(table.struct)
    schema = ", ".join(f"`{name}` {struct[name].dataType.simpleString()}" for name in names)
    return asked.spark.createDataFrame(rows.group_by(list(names)).aggregate([]).to_pylist(), schema)


def _shown_properties(asked: Asked, table: Table, key: str | None) -> DataFrame:
    properties = table.properties
    if key is None:
        rows = sorted(properties.items())
    else:
        rows = [(key, properties.get(key, f"Table {table.location} does not have property: {key}"))]
    return asked.spark.createDataFrame(rows, "key string, value string")


def _create_text(asked: Asked, name: str, table: Table, place: Place) -> str:
    """A CREATE TABLE statement that makes such a table."""
    lines = [
        f"  `{each.name}` {each.dataType.simpleString()}"
        + ("" if each.nullable else " NOT NULL")
        + (f" COMMENT {_text(each.metadata['comment'])}" if "comment" in each.metadata else "")
        for each in to_spark(table.struct).fields
    ]
    properties = {key: value for key, value in table.properties.items() if not key.startswith(_CONSTRAINT) and _can_be_given(key, value)}
    for key, value in sorted(table.properties.items()):
        if key.startswith(_CONSTRAINT):
            lines.append(f"  CONSTRAINT `{key.removeprefix(_CONSTRAINT)}` CHECK ({value})")
    parts = [f"CREATE TABLE {name} (", ",\n".join(lines) + ")", "USING sluice"]
    if table.partition_columns:
        parts.append(f"PARTITIONED BY ({', '.join(f'`{each}`' for each in table.partition_columns)})")
    if place.name is not None and not catalog_of(asked).describe(place.name).managed:
        parts.append(f"LOCATION {_text(table.location)}")
    described_as = table.detail().description
    if described_as is not None:
        parts.append(f"COMMENT {_text(described_as)}")
    if properties:
        parts.append(
            "TBLPROPERTIES (\n" + ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in sorted(properties.items())) + ")"
        )
    return "\n".join(parts)


def _can_be_given(key: str, value: str) -> bool:
    """Whether a property may be given to a new table: those that sluice itself keeps may not."""
    try:
        check_asked({key: value}, creating=True)
    except SluiceError:
        return False
    return True


def _text(text: str) -> str:
    """A string in SQL for people to read."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def show_tables(asked: Asked, statement: ShowTables) -> DataFrame | None:
    """The tables of a namespace that the coordinator keeps, after Spark's own of that name; None if it keeps no such namespace."""
    name = "default" if statement.namespace is None else ".".join(statement.namespace.parts)
    catalog = catalog_of(asked)
    known = {each.name.lower(): each.name for each in catalog.namespaces()}
    if name.lower() not in known:
        return None
    patterns = [each.strip().lower() for each in (statement.pattern or "*").split("|")]
    mine = [each for each in catalog.tables(known[name.lower()]) if any(fnmatch.fnmatchcase(each.name.lower(), one) for one in patterns)]
    rows = [(each.namespace, each.name, False) for each in mine]
    if asked.spark.catalog.databaseExists(name):
        theirs = asked.by_spark().collect()
        rows += [
            tuple(each) for each in theirs if (each[0].lower(), each[1].lower()) not in {(one[0].lower(), one[1].lower()) for one in rows}
        ]
    return asked.spark.createDataFrame(rows, "namespace string, tableName string, isTemporary boolean")


def describe(asked: Asked, statement: Describe, place: Place) -> DataFrame:
    """DESCRIBE DETAIL, DESCRIBE HISTORY, or the columns."""
    table = opened(place)
    if statement.what == "detail":
        return detail(asked.spark, described(table, place.name))
    if statement.what == "history":
        return history(asked.spark, commit_infos(table.access, None if statement.limit is None else int(statement.limit)))
    struct = to_spark(table.struct)
    fields = {each.name: each for each in struct.fields}
    if statement.column is not None:
        found = next((each for name, each in fields.items() if name.lower() == statement.column.lower()), None)
        if found is None:
            names = ", ".join(fields)
            raise asked.refused(statement.target, f"column {statement.column!r} is not in the table; its columns are {names}")
        rows = [("col_name", found.name), ("data_type", found.dataType.simpleString()), ("comment", found.metadata.get("comment", "NULL"))]
        return asked.spark.createDataFrame(rows, "info_name string, info_value string")
    return asked.spark.createDataFrame(
        _columns(table, fields, place, extended=statement.extended), "col_name string, data_type string, comment string"
    )


def _columns(table: Table, fields: dict[str, Any], place: Place, *, extended: bool) -> list[tuple[str, str, str | None]]:
    rows = [(each.name, each.dataType.simpleString(), each.metadata.get("comment")) for each in fields.values()]
    if table.partition_columns:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [(name, fields[name].dataType.simpleString(), fields[name].metadata.get("comment")) for name in table.partition_columns]
    if extended:
        known = table.detail()
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [("Name", place.name or table.location, ""), ("Type", "MANAGED" if place.name and known.name else "EXTERNAL", "")]
        rows += [("Comment", known.description, "")] if known.description else []
        rows += [("Location", known.location, ""), ("Provider", "sluice", "")]
        rows += [("Table Properties", "[" + ",".join(f"{key}={value}" for key, value in sorted(known.properties.items())) + "]", "")]
    return rows
