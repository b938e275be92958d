"""`sluice.sql`, and `spark.sql` in sessions of sluice: sends each statement to the engine that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from ..delta.metrics import frame
from ..spark_integration.active_session import is_classic
from ..spark_integration.errors import as_spark_users_know
from ..spark_integration.session.format_and_options import default_format, has_delta_lake, is_sluice
from ..sql_on_spark import rows, tables
from ..sql_plain import maintenance
from ..sql_plain.concurrency.coordination import show_state
from ..sql_plain.concurrency.expecting import NOT_OURS, expected
from ..sql_plain.dispatch import ON_NAMES, ON_PLACES
from ..sql_plain.place import Place
from ..statements.compound import Atomic, ExplainConflict
from ..statements.cursor import Name, Span
from ..statements.loading import Attach, CopyInto, Detach, Reorganise, Repair
from ..statements.locks import Lock, ShowState, Unlock
from ..statements.maintenance import Compact, Convert, Generate, Optimize, Restore, Vacuum
from ..statements.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..statements.reading import COORDINATED_ONLY, ENGINE_ONLY, IfVersion, Malformed, Other, Statement, bare, read
from ..statements.relations import Relation
from ..statements.rows import Delete, Insert, Merge, Update
from ..statements.tables import Clone, Create, Like, ShowTables, Undrop
from ..storage.arguments import checked
from ..storage.errors import UnsupportedFeature
from .concurrency import atomic, explain_conflict, lock, under_locks, unlock
from .queries import by_spark, found_in, place_of, require_known, run, table_of
from .spark_request import Asked

_ON_TABLES: Final[Mapping[type, Callable[[Asked, Any, Place], DataFrame]]] = {
    Insert: rows.insert,
    Update: rows.update,
    Delete: rows.delete,
    Merge: rows.merge,
}
"""What carries out a statement about rows of a table of ours; `ON_PLACES` carries out the others."""
_OURS_ALONE: Final = (Optimize, Compact, Vacuum, Restore, Generate, CopyInto, Reorganise, Repair, Detach)
"""Statements that Spark does not have; Delta Lake, if it is in the session, has most of them."""


@checked
def sql(
    spark: SparkSession,
    text: str,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Carry out one statement: one about tables of sluice by sluice, any other by Spark.

    `args` are the values of the parameters, by name for `:name`, or in the order of the question marks. Queries read all tables of
    sluice as of one moment. `coordinator` and `storage_options` default to those given to `sluice.configure`. Statements that Spark
    has return what Spark returns; docs/sql.md lists the others. Errors are sluice's and, at the same time, those that Spark users
    catch; a statement that raises has written nothing.
    """
    with as_spark_users_know():
        asked = Asked(spark, text, args, coordinator, storage_options)
        statement = read(text)
        if not is_classic(spark):
            _require_classic(asked, bare(statement))
        try:
            with nullcontext() if isinstance(statement, Unlock) else under_locks(spark):
                return _carried_out(asked, statement)
        except PySparkAttributeError as missing:
            if is_classic(spark):
                raise
            raise _over_connect("this statement, with such conditions or parameters,", "write them as plain literals") from missing


def by_session(spark: SparkSession, text: str, args: Any = None, **frames: Any) -> DataFrame:
    """`spark.sql` of a session of sluice: `frames` are the DataFrames and values that the text names in braces."""
    formatter = SQLStringFormatter(spark)
    try:
        return sql(spark, formatter.format(text, **frames) if frames else text, args)
    finally:
        if frames:
            formatter.clear()


_INSTEAD: Final[Mapping[type, tuple[str, str]]] = {
    Insert: ("INSERT", "df.write.format('sluice').mode('append').save(path) adds rows, overwrite with replaceWhere replaces some"),
    Update: ("UPDATE", "sluice.Table.update changes rows"),
    Delete: ("DELETE", "sluice.Table.delete deletes rows"),
    Merge: ("MERGE", "sluice.Table.upsert replaces rows by a key"),
    Atomic: ("BEGIN ATOMIC", "sluice.transaction(spark, ...) appends to several tables and overwrites them"),
    ExplainConflict: ("EXPLAIN CONFLICT", "sluice sql --engine local runs it"),
    Create: ("CREATE TABLE ... AS SELECT", "create the table with its columns, and append the rows with df.write.format('sluice')"),
}
"""What Spark Connect cannot run of tables of sluice, and what does instead."""
_READ: Final = "spark.read.format('sluice').load(path) or sluice.read reads it: give that DataFrame a temporary view, and query the view"


def _require_classic(asked: Asked, statement: Statement) -> None:
    """Raise UnsupportedFeature for a statement that needs Spark's JVM, which Spark Connect hides."""
    title, instead = _INSTEAD.get(type(statement), ("", ""))
    if isinstance(statement, Create):
        is_ours = statement.query is not None and tables.is_created_here(asked, statement)
    else:
        is_ours = not isinstance(statement, (Insert, Update, Delete, Merge)) or place_of(asked, statement.target) is not None
    title = title if is_ours else ""
    if not title and found_in(asked, getattr(statement, "relations", ())):
        title, instead = "a query of a table of sluice", _READ
    if title:
        raise _over_connect(title, instead)


def _over_connect(what: str, instead: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} needs Spark's JVM, which Spark Connect hides: {instead}; or run the statement in a classic session",
        features=["Spark Connect"],
        access="write",
    )


def _carried_out(asked: Asked, statement: Statement) -> DataFrame:
    match statement:
        case IfVersion():
            return _carried_out(replace(asked, if_version=expected(asked, statement)), statement.statement)
        case Other():
            return run(asked, statement)
        case Malformed():
            return _malformed(asked, statement)
        case Atomic():
            return atomic(asked, statement)
        case ExplainConflict():
            return explain_conflict(asked, statement)
        case Lock():
            return lock(asked, statement)
        case Unlock():
            return unlock(asked, statement)
        case ShowState():
            table = partial(table_of, asked, takes_no="part in what sluice coordinates")
            return frame(asked.spark, show_state(asked, statement, table))
        case Create():
            if not tables.is_created_here(asked, statement):
                return _left_to_spark(asked, None, statement.relations)
            return tables.create(asked, statement)
        case Clone():
            return frame(asked.spark, maintenance.clone(asked, statement, require_known(asked, statement.source)))
        case Convert() | Attach() | Undrop():
            return frame(asked.spark, ON_NAMES[type(statement)](asked, statement))
        case ShowTables():
            return tables.show_tables(asked, statement)
        case CreateNamespace() | DropNamespace() | ShowNamespaces() | Comment():
            return tables.about_namespace(asked, statement)
        case Like():
            return tables.create_like(asked, statement)
    place = place_of(asked, statement.target)
    if place is None and isinstance(statement, _OURS_ALONE) and not has_delta_lake(asked.spark):
        place = require_known(asked, statement.target)
    if place is None:
        return _left_to_spark(asked, statement.target, getattr(statement, "relations", ()))
    on_rows: Any = _ON_TABLES.get(type(statement))
    if on_rows is not None:
        frame_of_rows: DataFrame = on_rows(asked, statement, place)
        return frame_of_rows
    return frame(asked.spark, ON_PLACES[type(statement)](asked, statement, place))


def _malformed(asked: Asked, statement: Malformed) -> DataFrame:
    """Say why a statement about a table of ours cannot be read; Spark says it about its own."""
    is_ours = statement.words[0] in ENGINE_ONLY or not COORDINATED_ONLY.isdisjoint({statement.words[:1], statement.words[:2]})
    is_ours = is_ours or (statement.target is not None and place_of(asked, statement.target) is not None)
    is_made = statement.words[0] in ("CREATE", "REPLACE") and is_sluice(statement.provider or default_format(asked.spark), asked.spark)
    if is_ours or is_made:
        raise asked.refused(statement.at, statement.message)
    return _left_to_spark(asked, statement.target, statement.relations)


def _left_to_spark(asked: Asked, target: Name | None, relations: Sequence[Relation]) -> DataFrame:
    """A statement about something that is not sluice's; tables of sluice may be read in it."""
    if asked.if_version is not None:
        raise asked.refused(target or Span(0, 0), NOT_OURS)
    names = [each for each in (target, *(each.name for each in relations)) if each is not None]
    return by_spark(asked, found_in(asked, relations), names)
