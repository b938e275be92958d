"""One table's part of a transaction over several, with `DeltaTable`'s operations on rows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..spark_integration.active_session import evolves_schemas
from ..spark_integration.errors import as_spark_users_know
from ..spark_integration.rows.assignments import as_the_table_stores
from ..spark_integration.rows.merge import merge_rows
from ..spark_integration.rows.request import MergeRequest
from ..statements.reports import affected, merged
from ..statements.spark.frames import frame
from ..storage.errors import InvalidRequest
from ..tables.joint_transaction import JointTransaction, Named
from .arguments import Assignments, Expression, assignments, expression
from .builders import DeltaMergeBuilder
from .committing import Terms


class TablePart:
    """`t[table]` of `with sluice.transaction(spark, ...) as t`: operations that become one commit with the others of `t`.

    Each sees what the ones before it did. Metrics are those of `DeltaTable`'s methods.
    """

    def __init__(self, spark: SparkSession, transaction: JointTransaction, table: Named, alias: str | None = None) -> None:
        self._spark = spark
        self._transaction = transaction
        self._table = table
        self._alias = alias

    def alias(self, aliasName: str) -> TablePart:
        """The same part, whose columns may be named after `aliasName`."""
        return TablePart(self._spark, self._transaction, self._table, aliasName)

    def append(self, rows: Any, *, merge_schema: bool = False) -> None:
        """Add rows: a DataFrame, whose values are cast as Spark casts them for its own tables, or Arrow data."""
        evolves = merge_schema or evolves_schemas(self._spark)
        with as_spark_users_know(), self._stored(rows, evolves=evolves) as fitting:
            self._transaction.append(self._table, fitting, merge_schema=evolves)

    def overwrite(self, rows: Any, where: str | None = None, *, dynamic: bool = False, merge_schema: bool = False) -> None:
        """Replace the whole table; with `where` the rows that satisfy it; with `dynamic` the partitions of the new rows."""
        evolves = merge_schema or evolves_schemas(self._spark)
        with as_spark_users_know(), self._stored(rows, evolves=evolves) as fitting:
            self._transaction.overwrite(self._table, fitting, where, dynamic=dynamic, merge_schema=evolves)

    def delete(self, condition: Expression | None = None) -> DataFrame:
        """Delete the rows that satisfy a condition, all without one, as `DeltaTable.delete`."""
        return self._changed(MergeRequest.delete(expression(condition), alias=self._alias), Terms())

    def update(self, condition: Expression | None = None, set: Assignments | None = None) -> DataFrame:
        """Give the columns in `set` new values, in the rows that satisfy a condition, as `DeltaTable.update`."""
        return self._changed(MergeRequest.update(assignments(set, "set"), expression(condition), alias=self._alias), Terms())

    def merge(self, source: DataFrame, condition: Expression) -> DeltaMergeBuilder:
        """Merge the rows of `source`: the builder takes the clauses, its `execute` makes them part of the transaction."""
        on = expression(condition)
        if on is None:
            raise ValueError("condition is None; say when rows match, such as 'target.id = source.id'")
        return DeltaMergeBuilder(MergeRequest(source, on, target_alias=self._alias), self._changed)

    def _stored(self, rows: Any, *, evolves: bool) -> AbstractContextManager[Any]:
        if not isinstance(rows, DataFrame):
            return nullcontext(rows)
        return as_the_table_stores(rows, self._transaction.do(self._table, lambda part: part.struct), evolves=evolves)

    def _changed(self, request: MergeRequest, terms: Terms) -> DataFrame:
        with as_spark_users_know():
            if terms != Terms():
                raise InvalidRequest(
                    "isolation, key and transaction belong to the whole transaction: give them to sluice.transaction, not to execute"
                )
            counts = self._transaction.do(self._table, lambda part: merge_rows(part, self._spark, request))
            return frame(self._spark, merged(counts) if request.operation == "MERGE" else affected(counts))
