"""OPTIMIZE, VACUUM, RESTORE, CONVERT and SHALLOW CLONE."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField
from pyspark.sql.types import StructType as SparkStruct

from ..delta.metrics import empty
from ..delta.optimizing import Optimize as Optimizing
from ..delta.optimizing import optimize as run_optimize
from ..delta.places import Place, place_of_path
from ..delta.restoring import restore as run_restore
from ..spark_integration.schemas import from_spark
from ..statements.care import Convert, Optimize, Restore, Vacuum
from ..statements.columns import Column
from ..statements.cursor import Span
from ..statements.tables import Clone
from ..storage.errors import InvalidRequest, TableExists
from ..tables.table import Table
from .asked import Asked
from .places import catalog_of, opened, title
from .queries import milliseconds

__all__ = ["clone", "convert", "optimize", "restore", "vacuum"]

_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


def optimize(asked: Asked, statement: Optimize, place: Place) -> DataFrame:
    """Rewrite files as fewer ones, or in an order. Returns one row: path and metrics."""
    where = () if statement.where is None else (asked.expression(statement.where),)
    order = statement.z_order_by or None
    how = Optimizing(where, "major" if order else "minor", None, order)
    return run_optimize(asked.spark, opened(place), how)


def vacuum(asked: Asked, statement: Vacuum, place: Place) -> DataFrame:
    """Delete files that no version within retention needs. Returns the paths of a dry run, otherwise the location."""
    force = str(asked.spark.conf.get(_RETENTION_CHECK, "true")).lower() == "false"
    table = opened(place)
    hours = None if statement.hours is None else float(statement.hours)
    report = table.vacuum(hours, dry_run=statement.dry_run, force=force)
    paths = [*(each.key for each in report.garbage), *report.log_files] if statement.dry_run else [table.location]
    return asked.spark.createDataFrame([(each,) for each in paths], "path string")


def restore(asked: Asked, statement: Restore, place: Place) -> DataFrame:
    """Make the table what it was. Returns one row: sizes and numbers of files."""
    version, timestamp = moment_of(asked, statement.is_version, statement.value)
    return run_restore(asked.spark, opened(place), version=version, timestamp=timestamp)


def moment_of(asked: Asked, is_version: bool, value: Span) -> tuple[int | None, int | None]:
    """A version, or a time in milliseconds."""
    return (int(asked.value(value, "BIGINT")), None) if is_version else (None, milliseconds(asked, value))


def convert(asked: Asked, statement: Convert) -> DataFrame:
    """Make a folder of Parquet files a table. Returns an empty DataFrame."""
    first, *rest = statement.target.parts
    if first.lower() != "parquet" or len(rest) != 1:
        raise asked.refused(statement.target, "name the folder of Parquet files as parquet.`/a/path`")
    place = place_of_path(rest[0], {}, asked.coordinator, asked.options)
    schema = from_spark(struct_of(asked, statement.partitioned_by)) if statement.partitioned_by else None
    Table.convert(place.location, schema, coordinator=place.coordinator, storage_options=place.storage_options)
    return empty(asked.spark)


def struct_of(asked: Asked, columns: tuple[Column, ...]) -> SparkStruct:
    """The columns as Spark's type. Raises InvalidRequest for one without a type, and for what sluice does not keep."""
    fields: list[StructField] = []
    for each in columns:
        if each.refused is not None:
            words, at = each.refused
            raise asked.unsupported(at, f"sluice keeps no {words} of a column: leave it out, and compute values in the query", words)
        if each.type is None:
            raise InvalidRequest(f"column {each.name!r} has no type; write it as {each.name} BIGINT", column=each.name)
        kind = DataType.fromDDL(each.type.of(asked.text))
        fields.append(StructField(each.name, kind, each.nullable, None if each.comment is None else {"comment": each.comment}))
    return SparkStruct(fields)


def clone(asked: Asked, statement: Clone, source: Place) -> DataFrame:
    """Make a table that shares the files of another one. Returns an empty DataFrame."""
    name = statement.target
    if not statement.shallow:
        raise asked.unsupported(name, "a deep clone copies files: use SHALLOW CLONE, or CREATE TABLE ... AS SELECT", "deep clone")
    if statement.how not in ("create", "createOrReplace"):
        raise asked.unsupported(name, "a clone takes CREATE TABLE or CREATE OR REPLACE TABLE", "clone")
    path = name.path or statement.location
    if path is None:
        raise asked.unsupported(name, "a clone by name needs a place: add LOCATION '...'", "managed clones")
    if name.path is None and catalog_of(asked).exists(name.quoted):
        raise TableExists(asked.shown(name, f"there is a table {title(name)} already"), name=title(name))
    version, timestamp = (None, None) if statement.as_of is None else moment_of(asked, *statement.as_of)
    opened(source).clone(path, version, timestamp, replace=statement.how != "create", properties=statement.properties)
    if name.path is None:
        catalog_of(asked).register(name.quoted, path)
    return empty(asked.spark)
