"""DataFrames whose rows are committed in the user's own process, such as by a transaction over several tables.

An optimised write shuffles the rows first, so that each partition of the table gets few files. Without, each of a job's tasks writes a
file into every partition that it has rows of. Spark's own rebalancing shuffles them: the rows of one partition meet in one task, small
partitions share a task, and one that is large is split among several.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ...storage.actions import AddFile
from ...storage.data.row_ids import RowIdColumns
from ...storage.errors import InvalidRequest
from ...storage.schema.schema import to_arrow
from ...tables.client.property_rules import OPTIMIZE_WRITE, file_size_of, is_on
from ...tables.write.data_writing import WritePlan
from ..active_session import codec_of_session, copied, set_to
from ..jvm import analysed, in_session, quoted
from ..schemas import from_spark
from .filling import filled
from .spark_writer import written_by_spark
from .task_writer import written_in_tasks

_log = logging.getLogger(__name__)

SETTING: Final = "spark.databricks.delta.optimizeWrite.enabled"
_SHUFFLED_PER_STORED: Final = 4
"""Bytes of shuffled rows for a byte of a file, as in Delta Lake, whose bins of 512 MiB make files of 128 MB."""
_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
}
"""By these Spark looks at the sizes of what was shuffled before it makes tasks of it. It switches them off for streams."""


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


# -- optimised writes: rows are shuffled first -----------------------------------------------------------------------------


def is_wanted(told: bool | None, setting: str, configuration: Mapping[str, str]) -> bool:
    """Whether a write is optimised: the writer's option counts before the session's setting, that one before the table's property.

    Raises InvalidRequest for a setting that is neither true nor false.
    """
    if told is not None:
        return told
    if setting:
        if setting.lower() not in ("true", "false"):
            raise InvalidRequest(f"{SETTING} is {setting!r}; set it to true or false", option=SETTING)
        return setting.lower() == "true"
    return is_on(configuration, OPTIMIZE_WRITE)


def why_not_gathered(rows: DataFrame) -> str | None:
    """Why rows are written as they come although their write is to be optimised; None if they can be shuffled."""
    if not hasattr(rows.sparkSession, "_jsparkSession"):
        return "this is Spark Connect"
    if "CollectMetrics" in analysed(rows).toString():
        return "their metrics are observed in the session of the DataFrame"
    return None


@contextmanager
def gathered(rows: DataFrame, plan: WritePlan) -> Iterator[DataFrame]:
    """The rows, shuffled by the table's partitions, in a copy of their session, which is the thread's own within the block."""
    with copied(rows.sparkSession, {}) as own, gathering(in_session(own, rows), plan) as shuffled:
        yield shuffled


@contextmanager
def gathering(rows: DataFrame, plan: WritePlan) -> Iterator[DataFrame]:
    """The rows of a session that is sluice's own, shuffled by the table's partitions; the session has the settings for it in the block."""
    session = rows.sparkSession
    size = _SHUFFLED_PER_STORED * file_size_of(dict(plan.metadata.configuration))
    with set_to(session, {**_SETTINGS, "spark.sql.adaptive.advisoryPartitionSizeInBytes": f"{size}b"}):
        yield rows.hint("rebalance", *(F.col(quoted(name)) for name in plan.metadata.partition_columns))
