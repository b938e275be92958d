"""OPTIMIZE, COMPACT, VACUUM, RESTORE, CONVERT, GENERATE and SHALLOW CLONE."""

from __future__ import annotations

from ..statements.loading import Analyze, Attach, Detach, Reorganise, Repair
from ..statements.maintenance import Compact, Convert, Generate, Optimize, Restore, Vacuum
from ..statements.tables import Clone
from ..storage.errors import TableExists
from ..tables.table import Table
from . import optimizing
from .definitions.creating import struct_of
from .partitions import partition_condition
from .place import Place, catalog_of, opened, title
from .reports import NOTHING, Answer, restored
from .request import Request


def optimize(asked: Request, statement: Optimize, place: Place) -> Answer:
    """Rewrite files as fewer ones, or in an order. Answers one row: path and metrics."""
    where = () if statement.where is None else (asked.expression(statement.where),)
    order = statement.z_order_by or None
    how = optimizing.Optimize(where, "full" if statement.full else "major" if order else "minor", None, order)
    return optimizing.optimize(opened(place), how, asked.user_metadata, asked.if_version)


def compact(asked: Request, statement: Compact, place: Place) -> Answer:
    """Rewrite files as fewer ones: MINOR small files, MAJOR also those with deleted rows. Answers one row: path and metrics."""
    table = opened(place)
    where = partition_condition(asked, statement.partition, table.struct, table.partition_columns)
    how = optimizing.Optimize(() if where is None else (where,), statement.mode)
    return optimizing.optimize(table, how, asked.user_metadata, asked.if_version)


def vacuum(asked: Request, statement: Vacuum, place: Place) -> Answer:
    """Delete files that no version within retention needs. Answers the paths of a dry run, otherwise the location."""
    table = opened(place)
    hours = None if statement.hours is None else float(statement.hours)
    report = table.vacuum(hours, dry_run=statement.dry_run, force=asked.may_keep_short)
    paths = [*(each.key for each in report.garbage), *report.log_files] if statement.dry_run else [table.location]
    return Answer("path string", tuple((each,) for each in paths))


def restore(asked: Request, statement: Restore, place: Place) -> Answer:
    """Make the table what it was. Answers one row: sizes and numbers of files."""
    version, timestamp = asked.moment(statement.is_version, statement.value)
    table = opened(place)
    return restored(table, table.restore(version, timestamp, if_version=asked.if_version, user_metadata=asked.user_metadata))


def convert(asked: Request, statement: Convert) -> Answer:
    """Make a folder of Parquet files a table."""
    first, *rest = statement.target.parts
    if first.lower() != "parquet" or len(rest) != 1:
        raise asked.refused(statement.target, "name the folder of Parquet files as parquet.`/a/path`")
    schema = struct_of(asked, statement.partitioned_by) if statement.partitioned_by else None
    Table.convert(rest[0], schema, coordinator=asked.coordinator, storage_options=asked.options)
    return NOTHING


def generate(_: Request, statement: Generate, place: Place) -> Answer:
    """Write manifests for engines that read files by lists."""
    opened(place).generate(statement.mode)
    return NOTHING


def clone(asked: Request, statement: Clone, source: Place) -> Answer:
    """Make a table that shares the files of another one."""
    name = statement.target
    if not statement.shallow:
        raise asked.unsupported(name, "a deep clone copies files: use SHALLOW CLONE, or CREATE TABLE ... AS SELECT", "deep clone")
    if statement.how not in ("create", "createOrReplace"):
        raise asked.unsupported(name, "a clone takes CREATE TABLE or CREATE OR REPLACE TABLE", "clone")
    path = name.path or statement.location
    if path is None:
        raise asked.unsupported(name, "a clone by name needs a place: add LOCATION '...'", "managed clones")
    if name.path is None and catalog_of(asked).exists(name.quoted):
        raise TableExists(asked.shown(name, f"a table {title(name)} already exists"), name=title(name))
    version, timestamp = (None, None) if statement.as_of is None else asked.moment(*statement.as_of)
    opened(source).clone(path, version, timestamp, replace=statement.how != "create", properties=statement.properties)
    if name.path is None:
        catalog_of(asked).register(name.quoted, path)
    return NOTHING


def reorganise(asked: Request, statement: Reorganise, place: Place) -> Answer:
    """Write files with deleted rows again without them, and merge small ones. Answers one row: path and metrics."""
    where = () if statement.where is None else (asked.expression(statement.where),)
    return optimizing.optimize(opened(place), optimizing.Optimize(where, "major"), asked.user_metadata, asked.if_version)


def repair(asked: Request, statement: Repair, place: Place) -> Answer:
    """Take files that the store lacks out of the table; a dry run only names them. Answers their paths, and why."""
    table = opened(place)
    missing = table.missing_files()
    if missing and not statement.dry_run:
        table.repair(if_version=asked.if_version)
    return Answer("dataFilePath string, reason string", tuple(missing.items()))


def analyze(asked: Request, statement: Analyze, place: Place) -> Answer:
    """Give files the statistics that they lack. Answers one row: numbers of files."""
    if statement.refused is not None:
        words, at = statement.refused
        said = f"ANALYZE looks at all files that lack statistics, without {words}: leave it out"
        raise asked.unsupported(at, said, f"ANALYZE ... {words}")
    done = opened(place).analyze(statement.columns, if_version=asked.if_version, user_metadata=asked.user_metadata)
    numbers = (done.files, done.lacking, done.from_footers, done.from_rows, done.bytes_read)
    return Answer("num_files bigint, num_lacking bigint, num_from_footers bigint, num_from_rows bigint, num_bytes_read bigint", (numbers,))


def attach(asked: Request, statement: Attach) -> Answer:
    """Bring a Delta table under sluice, and give it a name if the statement has one."""
    path = statement.target.path
    if path is None:
        raise asked.refused(statement.target, "name the table by its location: sluice.`/a/path`")
    if statement.name is None:
        Table.attach(path, coordinator=asked.coordinator, storage_options=asked.options).close()
    else:
        catalog_of(asked).register(statement.name.quoted, path)
    return NOTHING


def detach(asked: Request, statement: Detach, place: Place) -> Answer:
    """Take a table's name away, and give the table back to other engines."""
    table = opened(place)
    if place.name is not None:
        catalog_of(asked).drop(statement.target.quoted, keep_data=True)
    table.detach()
    return NOTHING
