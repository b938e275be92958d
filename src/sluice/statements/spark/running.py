"""`sluice.sql`, and `spark.sql` in sessions of sluice: runs statements, those about tables of sluice by sluice, all others by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from ...spark_integration.active_session import is_classic
from ...spark_integration.errors import as_spark_users_know
from ...storage.arguments import checked
from ...storage.errors import UnsupportedFeature
from ..parse.concurrency import Atomic, ExplainConflict
from ..parse.reading import Statement, bare, read
from ..parse.rows import Delete, Insert, Merge, Update
from ..parse.tables import Create
from ..places import relations_of_sluice
from ..run import run
from . import engine
from .queries import SparkRequest


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
        request, statement = SparkRequest(spark, text, args, coordinator, storage_options), read(text)
        if not is_classic(spark):
            _require_classic(request, bare(statement))
        try:
            return run(engine, request, statement)
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


def _require_classic(request: SparkRequest, statement: Statement) -> None:
    """Raise UnsupportedFeature for a statement that needs Spark's JVM, which Spark Connect hides."""
    title, instead = _INSTEAD.get(type(statement), ("", ""))
    if isinstance(statement, Create):
        is_ours = statement.query is not None and engine.creates(request, statement)
    else:
        is_ours = not isinstance(statement, (Insert, Update, Delete, Merge)) or request.place_of(statement.target) is not None
    title = title if is_ours else ""
    if not title and relations_of_sluice(request, getattr(statement, "relations", ())):
        title, instead = "a query of a table of sluice", _READ
    if title:
        raise _over_connect(title, instead)


def _over_connect(what: str, instead: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} needs Spark's JVM, which Spark Connect hides: {instead}; or run the statement in a classic session",
        features=["Spark Connect"],
        access="write",
    )
