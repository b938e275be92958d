"""DataFrames whose rows are committed in the user's own process, such as by a transaction over several tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ...storage.actions import AddFile
from ...storage.data.row_ids import RowIdColumns
from ...storage.schema.schema import to_arrow
from ...tables.write.data_writing import WritePlan
from ..active_session import codec_of_session
from ..schemas import from_spark
from .filling import filled
from .optimised import SETTING, gathered, is_wanted, why_not_gathered
from .spark_writer import written_by_spark
from .task_writer import written_in_tasks

_log = logging.getLogger(__name__)


def written_by_executors(
    rows: Any, ids: RowIdColumns | None = None, *, optimise: bool | None = None
) -> tuple[pa.Schema, Callable[[WritePlan, str], Sequence[AddFile]]] | None:
    """The schema of a DataFrame, and a function that writes its rows by a plan; None for anything else. Raises SchemaMismatch.

    Spark's own Parquet writer writes the files where it can; otherwise Python tasks do. `ids` are columns in which the rows bring their
    ids along. `optimise`: whether the rows are shuffled first, into few files; None: as the session or the table says.
    """
    if not isinstance(rows, DataFrame):
        return None
    schema = to_arrow(from_spark(rows.schema))

    def write(plan: WritePlan, label: str) -> Sequence[AddFile]:
        plan.require_fit(schema, ids)  # before any task runs
        plan.require_partitions(schema)
        plan = replace(plan, compression=plan.compression or codec_of_session(rows.sparkSession))
        whole, plan = filled(rows, plan)
        with gathered(whole, plan) if _is_gathered(whole, plan, optimise) else nullcontext(whole) as frame:
            files = written_by_spark(frame, plan, label) if ids is None else "they bring their ids along"
            if isinstance(files, str):
                _log.info("rows for %s are written by Python tasks: %s", plan.address.location, files)
                return written_in_tasks(frame, plan, label, ids)
            return files

    return schema, write


def _is_gathered(rows: DataFrame, plan: WritePlan, told: bool | None) -> bool:
    if not is_wanted(told, rows.sparkSession.conf.get(SETTING, "") or "", plan.metadata.configuration):
        return False
    reason = why_not_gathered(rows)
    if reason is not None:
        _log.info("rows for %s are not shuffled before they are written: %s", plan.address.location, reason)
    return reason is None
