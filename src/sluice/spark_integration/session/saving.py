"""Saves a DataFrame in a table: planned and committed in the user's own process, files written by Spark's tasks."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from ...coordinator.api import TableName
from ...coordinator.rules.intent import table_policy
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch, TableExists, TableNotFound
from ...storage.schema.conform import other_number_of_columns
from ...tables.manage.creation import finish_naming
from ...tables.planned_writes import abandon_plan
from ...tables.table import Table
from ..active_session import evolves_schemas, use_session, user_metadata_of
from ..data_source.write_plan import commit, is_repeated, open_table, plan_for
from ..options import WriteOptions
from ..rows.assignments import as_the_table_stores
from ..rows.conditions import reads_of
from ..writing import written_by_executors
from .names import Options

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Write:
    """A write as asked for: the mode ("append", "overwrite", "error" or "ignore"), the options, the columns to partition or
    cluster by, if any.

    `replaces`: an existing table gets the schema, partitioning and properties of this write, and loses those it had. `defines`: the write
    is a statement's that makes a table (CREATE TABLE AS SELECT), and the history says so.
    """

    mode: str
    options: Options
    partition_by: tuple[str, ...] | None = None
    replaces: bool = False
    cluster_by: tuple[str, ...] | None = None
    defines: bool = False

    def parsed(self, location: str, frame: DataFrame) -> WriteOptions:
        """The options of the data source for this write, with what the session's own settings add. Raises InvalidRequest."""
        options = {**self.options.besides("path"), "path": location}
        if self.partition_by is not None:
            option = self.options.get("partitionBy")
            if option is not None:
                raise InvalidRequest(f"partitionBy was called, and is also an option, {option!r}: give one of them", option="partitionBy")
            options["partitionBy"] = json.dumps(self.partition_by)
        if self.cluster_by is not None:
            options["clusterBy"] = json.dumps(self.cluster_by)
        parsed = WriteOptions.parse(options, overwrite=self.mode == "overwrite")
        if self.options.get("mergeSchema") is None and not parsed.overwrite_schema:
            parsed = replace(parsed, merge_schema=evolves_schemas(frame.sparkSession))
        if parsed.terms.user_metadata is None:
            parsed = replace(parsed, terms=replace(parsed.terms, user_metadata=user_metadata_of(frame.sparkSession)))
        if parsed.partition_by is not None:
            parsed = replace(parsed, partition_by=tuple(_column(name, frame.columns) for name in parsed.partition_by))
        return parsed


def save(
    frame: DataFrame,
    location: str,
    write: Write,
    *,
    name: str | None = None,
    managed: bool = False,
    missing: TableNotFound | None = None,
    taken: TableExists | None = None,
    table: Table | None = None,
) -> None:
    """Save the rows at a location. Raises the errors of `Table.create`, `append` and `overwrite`, and those of its tasks.

    What the schema and the table tell is checked before a task runs. A table that this creates gets the `name`, if one is given;
    `managed` says that the catalog chose its location. `missing` is raised if the table is not there, and `taken` if it must not be. A
    `table` that is open already is not opened again.
    """
    options = write.parsed(location, frame)
    use_session(frame.sparkSession)  # PySpark makes functions for its tasks in the thread's session
    if table is None:
        with suppress(TableNotFound):
            table = open_table(options)
    if table is None and missing is not None:
        raise missing
    if table is not None:
        if name is not None:
            finish_naming(options.address, TableName.parse(name))
            raise TableExists(
                f"a table already exists at {table.location}, without the name {name}: give it one with sluice.Catalog.register, "
                "or leave the option path out",
                location=table.location,
            )
        if write.mode in ("error", "ignore"):
            if write.mode == "error" and not is_repeated(table, options):
                raise taken or TableExists(
                    f"a table already exists at {options.address.location}, and the save mode is error, which creates one: "
                    "use mode('append'), mode('overwrite') or mode('ignore')",
                    location=options.address.location,
                )
            return
        options = _depending(_dynamic_by_setting(frame.sparkSession, write, options, table), frame, table)
    new = write.mode in ("error", "ignore") or name is not None
    options = replace(options, only_new=new, name=name, managed=managed, replaces=write.replaces, defines=write.defines)
    try:
        if table is None or options.overwrite_schema:
            _save(frame, options, table)
        else:
            evolves = table.snapshot().raw if options.merge_schema else None
            with as_the_table_stores(frame, table.struct, evolves=evolves) as rows:
                _save(rows, options, table)
    except TableExists:
        if write.mode != "ignore":
            raise
        _log.info("%s was created by another client meanwhile: nothing is written, the save mode is ignore", options.address.location)


def insert(frame: DataFrame, location: str, write: Write) -> None:
    """Save the rows in an existing table, columns by position. Raises SchemaMismatch, and what `save` does."""
    table = open_table(write.parsed(location, frame))
    names = table.struct.names
    if len(names) != len(frame.columns):
        raise other_number_of_columns(frame.columns, names)
    save(frame.toDF(*names), location, write, table=table)


def _save(frame: DataFrame, options: WriteOptions, table: Table | None) -> None:
    plan, repeated = plan_for(options, frame.schema, table)
    if repeated:
        abandon_plan(plan)
        return
    _, write_rows = written_by_executors(frame, optimise=options.optimize_write)
    try:
        commit(plan, options, write_rows(plan, ""), table)
    except BaseException:
        abandon_plan(plan)
        raise


def _dynamic_by_setting(spark: SparkSession, write: Write, options: WriteOptions, table: Table) -> WriteOptions:
    """An overwrite that names no rows to replace, as the session's setting says: whole, or by the partitions of the new rows. A table
    without partitions is overwritten whole, as in Spark.
    """
    if options.mode == "dynamic" and not table.partition_columns:
        return replace(options, mode="overwrite")
    is_chosen = any(write.options.get(name) is not None for name in ("partitionOverwriteMode", "replaceWhere"))
    if options.mode != "overwrite" or options.overwrite_schema or is_chosen or not table.partition_columns:
        return options
    setting = str(spark.conf.get("spark.sql.sources.partitionOverwriteMode"))
    return replace(options, mode="dynamic") if setting.lower() == "dynamic" else options


def _depending(options: WriteOptions, frame: DataFrame, table: Table) -> WriteOptions:
    """The write on the version from which the frame reads rows of the table itself, if it does: it depends on these rows. Options that say
    what was read count instead. MaxCompute's policies compare no rows.
    """
    if options.terms.read_version is not None or table_policy(table.properties).by_classes:
        return options
    reads = reads_of(frame, table.location, table.struct)
    if reads is None:
        return options
    replaces_all = options.mode == "overwrite" and options.where is None
    version = table.version if reads.version is None else reads.version
    terms = replace(options.terms, read_version=version)
    return replace(options, terms=terms, read_where=None if replaces_all else reads.where)


def _column(name: str, columns: Sequence[str]) -> str:
    """The column of this name, as the data spell it. Raises SchemaMismatch."""
    if name in columns:
        return name
    found = [each for each in columns if each.lower() == name.lower()]
    if not found:
        message = f"partitionBy names {name!r}, which the data lack; their columns are {', '.join(columns)}"
        raise SchemaMismatch(message, column=name, condition="PARTITION_COLUMN_NOT_FOUND_IN_SCHEMA")
    return found[0]
