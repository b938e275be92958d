"""SHOW TABLES: tables of sluice, and Spark's own."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from ..delta.metrics import frame
from ..sql_plain.definitions.showing import tables_of
from ..statements.tables import ShowTables
from .spark_request import Asked


def show_tables(asked: Asked, statement: ShowTables) -> DataFrame:
    """The tables of a namespace that the coordinator keeps, and Spark's own of that name."""
    ours = tables_of(asked, statement)
    if ours is None:
        return asked.by_spark()
    name = "default" if statement.namespace is None else ".".join(statement.namespace.parts)
    if asked.spark.catalog.databaseExists(name):
        known = {(namespace.lower(), table.lower()) for namespace, table, _ in ours.rows}
        theirs = [tuple(each) for each in asked.by_spark().collect() if (each[0].lower(), each[1].lower()) not in known]
        ours = replace(ours, rows=(*ours.rows, *theirs))
    return frame(asked.spark, ours)
