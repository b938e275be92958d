"""A table's rows as an open transaction sees them, read by Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ...coordinator.api import Reads
from ...tables.transaction import Transaction
from ..scan.native import Layout
from ..scan.python_scan import rows_of
from ..schemas import to_spark


def rows_so_far(part: Transaction, spark: SparkSession) -> DataFrame:
    """The rows as the operations so far left them: the files of the version read and the transaction's own, without deleted rows.

    The commit depends on the whole table then. The DataFrame keeps these rows, whatever later operations do.
    """
    with part.operation("READ", replaces=False) as operation:
        draft, files, address = operation.draft, operation.draft.files, operation.plan.address
        operation.done(None, Reads(predicates=("",), files=tuple(path for path in files["path"].to_pylist() if not draft.is_own(path))))
        if not files.num_rows:
            return spark.createDataFrame([], to_spark(draft.schema))
        layout = Layout(
            address.location, dict(address.storage_options), draft.schema, draft.partition_columns, draft.base.version, chosen=True
        )  # it counts already
        return rows_of(spark, layout, files, draft.deleted_in(files))
