"""Optimised writes: rows are shuffled before they are written, so that each partition of the table gets few files.

Without, each of a job's tasks writes a file into every partition that it has rows of. Spark's own rebalancing shuffles them: the rows of
one partition meet in one task, small partitions share a task, and one that is large is split among several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ...storage.errors import InvalidRequest
from ...tables.client.property_rules import OPTIMIZE_WRITE, file_size_of, is_on
from ...tables.write.data_writing import WritePlan
from ..active_session import copied, set_to
from ..jvm import analysed, in_session, quoted

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
