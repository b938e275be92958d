"""One table's part of a transaction over several, with `DeltaTable`'s operations on rows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..spark_integration.active_session import evolves_schemas
from ..spark_integration.errors import as_spark_users_know
from ..spark_integration.rows.analysis import MergeRequest
from ..spark_integration.rows.assignments import as_the_table_stores
from ..spark_integration.rows.merge import merge_rows
from ..storage.errors import InvalidRequest
from ..tables.joint_transaction import JointTransaction, Named
from ..tables.write.terms import WriteArgs
from .builders import RowChanges


class TablePart(RowChanges):
    """`t[table]` of `with sluice.transaction(spark, ...) as t`: operations that become one commit with the others of `t`.

    Each sees what the ones before it did. Metrics are those of `DeltaTable`'s methods. `t.part(table)` has those that need no Spark.
    """

    def __init__(self, spark: SparkSession, transaction: JointTransaction, table: Named, alias: str | None = None) -> None:
        super().__init__(spark, alias)
        self._transaction = transaction
        self._table = table

    def alias(self, aliasName: str) -> TablePart:
        """The same part, whose columns may be named after `aliasName`."""
        return TablePart(self._spark, self._transaction, self._table, aliasName)

    def append(self, rows: Any, *, merge_schema: bool = False) -> None:
        """Add rows: a DataFrame, whose values are cast as Spark casts them for its own tables, or Arrow data."""
        evolves = merge_schema or evolves_schemas(self._spark)
        with as_spark_users_know(), self._stored(rows, evolves=evolves) as fitting:
            self._transaction.part(self._table).append(fitting, merge_schema=evolves)

    def overwrite(self, rows: Any, where: str | None = None, *, dynamic: bool = False, merge_schema: bool = False) -> None:
        """Replace the whole table; with `where` the rows that satisfy it; with `dynamic` the partitions of the new rows."""
        evolves = merge_schema or evolves_schemas(self._spark)
        with as_spark_users_know(), self._stored(rows, evolves=evolves) as fitting:
            self._transaction.part(self._table).overwrite(fitting, where, dynamic=dynamic, merge_schema=evolves)

    def _stored(self, rows: Any, *, evolves: bool) -> AbstractContextManager[Any]:
        if not isinstance(rows, DataFrame):
            return nullcontext(rows)
        return as_the_table_stores(rows, self._transaction.part(self._table).struct, evolves=evolves)

    def _changed(self, request: MergeRequest, attempts: int, terms: WriteArgs) -> DataFrame:
        with as_spark_users_know():
            if attempts != 1 or any(value is not None for value in terms.values()):
                raise InvalidRequest(
                    "attempts, isolation, key and the like belong to the whole transaction: give them to sluice.transaction, not to one of "
                    "its operations"
                )
            return self._report(request, merge_rows(self._transaction.part(self._table), self._spark, request))
