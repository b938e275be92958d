"""A table's rows as an open transaction sees them, read by Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ...coordinator.facade.values import Reads
from ...tables.transaction import Transaction
from ...tables.write.data_writing import WritePlan
from ...tables.write.draft import Draft
from ...tables.write.operation_records import Step
from ..scan.native import Layout
from ..scan.python_scan import rows_of
from ..schemas import to_spark


def rows_so_far(part: Transaction, spark: SparkSession) -> DataFrame:
    """The rows as the operations so far left them: the files of the version read and the transaction's own, without deleted rows.

    The commit depends on the whole table then. The DataFrame keeps these rows, whatever later operations do.
    """
    found: list[DataFrame] = []

    def look(draft: Draft, plan: WritePlan, _: str) -> tuple[Reads | None, Step | None]:
        found.append(_rows(draft, plan, spark))
        files = tuple(path for path in draft.files["path"].to_pylist() if not draft.is_own(path))
        return Reads(predicates=("",), files=files), None

    part.change_elsewhere("READ", look, replaces=False)
    return found[0]


def _rows(draft: Draft, plan: WritePlan, spark: SparkSession) -> DataFrame:
    files, address = draft.files, plan.address
    if not files.num_rows:
        return spark.createDataFrame([], to_spark(draft.schema))
    layout = Layout(
        address.location, dict(address.storage_options), draft.schema, draft.partition_columns, draft.base.version, chosen=True
    )  # it counts already
    return rows_of(spark, layout, files, draft.deleted_in(files))
