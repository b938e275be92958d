"""DataFrames whose rows are committed in the user's own process, such as by a transaction over several tables.

An optimised write shuffles the rows first, so that each partition of the table gets few files. Without, each of a job's tasks writes a
file into every partition that it has rows of. Spark's own rebalancing shuffles them: the rows of one partition meet in one task, small
partitions share a task, and one that is large is split among several.

Where it can, Spark's own Parquet writer writes the files, so that no row leaves the JVM. It writes into a folder beside the table's files
that nothing lists, and its committer gathers there the files of each task's one successful attempt. Then this process reads the footers,
gives the files their names in the table, and removes the folder. A job that fails leaves nothing; a driver that is killed leaves the
folder, by whose name vacuum finds its owner. Decision 0022 says why this is for the local disk only.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...storage.actions import AddFile
from ...storage.constants import COMPRESSION
from ...storage.data.row_ids import RowIdColumns
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.arrow_schema import kind
from ...storage.schema.datatypes import PrimitiveType, StructField, StructType, as_nullable
from ...storage.schema.partitions import HIVE_DEFAULT_PARTITION, encode_value
from ...storage.schema.schema import to_arrow
from ...storage.stores.local import LocalStore
from ...tables.client.property_rules import OPTIMIZE_WRITE, file_size_of, is_on
from ...tables.write.data_writing import WritePlan
from ...tables.write.staged_files import StagedFile, adopt_files, why_rows_are_needed
from ..active_session import codec_of_session, copied, set_to
from ..jvm import analysed, class_in_jvm, in_session, quoted
from ..schemas import from_spark, to_spark
from .filling import filled
from .task_writer import written_in_tasks

_log = logging.getLogger(__name__)

SETTING: Final = "spark.databricks.delta.optimizeWrite.enabled"
_SHUFFLED_PER_STORED: Final = 4
"""Bytes of shuffled rows for a byte of a file, as in Delta Lake, whose bins of 512 MiB make files of 128 MB."""
_GATHERING: Final = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
}
"""By these Spark looks at the sizes of what was shuffled before it makes tasks of it. It switches them off for streams."""


def written_by_executors(
    rows: DataFrame, ids: RowIdColumns | None = None, *, optimise: bool | None = None
) -> tuple[pa.Schema, Callable[[WritePlan, str], Sequence[AddFile]]]:
    """The schema of a DataFrame, and a function that writes its rows by a plan. Raises SchemaMismatch.

    Spark's own Parquet writer writes the files where it can; otherwise Python tasks do. `ids` are columns in which the rows bring their
    ids along. `optimise`: whether the rows are shuffled first, into few files; None: as the session or the table says.
    """
    schema = to_arrow(from_spark(rows.schema))

    def write(plan: WritePlan, label: str) -> Sequence[AddFile]:
        plan.require_fit(schema, ids)  # before any task runs
        plan.require_partitions(schema)
        whole, plan = filled(rows, as_session_says(plan, rows.sparkSession))
        with gathered(whole, plan) if _is_gathered(whole, plan, optimise) else nullcontext(whole) as frame:
            files = written_by_spark(frame, plan, label) if ids is None else "they bring their ids along"
            if isinstance(files, str):
                _log.info("rows for %s are written by Python tasks: %s", plan.address.location, files)
                return written_in_tasks(frame, plan, label, ids)
            return files

    return schema, write


def as_session_says(plan: WritePlan, session: SparkSession) -> WritePlan:
    """The plan with what a session says of files and the plan leaves open: their codec, and the most rows of one."""
    limit = max(0, int(str(session.conf.get("spark.sql.files.maxRecordsPerFile")))) or None
    codec = plan.compression or codec_of_session(session)
    return replace(plan, compression=codec, max_records_per_file=plan.max_records_per_file or limit)


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
    with set_to(session, {**_GATHERING, "spark.sql.adaptive.advisoryPartitionSizeInBytes": f"{size}b"}):
        yield rows.hint("rebalance", *(F.col(quoted(name)) for name in plan.metadata.partition_columns))


_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
_COMMITTER: Final = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.sources.commitProtocolClass": _COMMITTER,
}
"""How Spark writes in any session: instants in microseconds, dates in today's calendar, names of columns only, the committer known here."""
_UNSET: Final = "spark.sql.sources.outputCommitterClass"
_OPTIONS: Final = {
    "parquet.compression.codec.zstd.level": "1",
    "parquet.column.statistics.enabled": "true",
    "parquet.statistics.truncate.length": "128",
    "parquet.summary.metadata.level": "NONE",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
"""Footers cut texts later than the log does. In version 1 of the committer's algorithm all files of a task become the job's at once."""
_DONE: Final = "_SUCCESS"
_NO_FOLDER: Final = "sluice: no folder can have the name of this partition value"
_NAME_BYTES: Final = 255
_TEXT_MIN: Final = 20
_WIDTHS: Final = ("byte", "short", "integer", "long")


def written_by_spark(rows: DataFrame, plan: WritePlan, label: str) -> tuple[AddFile, ...] | str:
    """The files that Spark writes of the rows, not visible yet; or the reason why rows have to go through Python tasks.

    The rows' schema fits the plan's. `label` distinguishes calls under one transaction. Raises the errors of the rows' own computation.
    """
    store = plan.address.store()
    if not isinstance(store, LocalStore):
        return "files by Spark's committers are known to be safe on the local disk only"
    reason = _why_not_here(rows) or why_rows_are_needed(plan) or _why_not_partitions(plan)
    if reason is not None:
        return reason
    columns = _columns(from_spark(rows.schema), plan.schema)
    if isinstance(columns, str):
        return columns
    with store.staging(f"{plan.transaction_id}-{label}" if label else plan.transaction_id) as folder:
        target = folder / "files"
        try:
            _write(rows.select(*columns), plan, target)
        except PySparkException as failed:
            if _NO_FOLDER in str(failed):
                return "a text among the partition values cannot be a folder's name"
            raise
        if not (target / _DONE).exists():
            return f"Spark's tasks do not write to the disk of {folder}"
        staged = list(_staged(target, plan))
        if any(each is None for each in staged):
            return "a folder's name does not tell its partition value"
        return adopt_files(plan, store, [each for each in staged if each is not None], label)


def _why_not_here(rows: DataFrame) -> str | None:
    session = rows.sparkSession
    if not hasattr(session, "_jsparkSession"):
        return "this is Spark Connect"
    context: Any = session.sparkContext
    if not context._jsc.sc().isLocal():
        return "executors may see another disk than this process"
    if "CollectMetrics" in analysed(rows).toString():
        return "its metrics are observed in the session of the DataFrame"
    return None


def _why_not_partitions(plan: WritePlan) -> str | None:
    """Why Spark's folders would not tell the partition values exactly."""
    for name, dtype in _partition_types(plan).items():
        if kind(dtype) not in ("string", "integer", "boolean", "date", "decimal"):
            return f"partition column {name} is of type {dtype}, which Spark's folders do not spell as the log does"
        if not name.isascii() or _text_max(name) < _TEXT_MIN:
            return f"partition column {name} has a long name, or one beyond ASCII"
    return None


def _partition_types(plan: WritePlan) -> dict[str, PrimitiveType]:
    types = {each.name: each.type for each in plan.schema.fields if isinstance(each.type, PrimitiveType)}
    return {name: types[name] for name in plan.metadata.partition_columns}


def _text_max(name: str) -> int:
    """The longest text of ASCII of which a folder `name=text` can certainly be made; each character may take three."""
    return (_NAME_BYTES - 3 * len(name) - 1) // 3


def _columns(data: StructType, schema: StructType) -> list[Column] | str:
    """The table's columns from those of the data; or the reason why values need a closer look."""
    types = to_spark(schema)
    columns: list[Column] = []
    for each in schema.fields:
        source_field = data.get(each.name)
        target = types[each.name].dataType
        if source_field is None or source_field.type == PrimitiveType("void"):
            columns.append(F.lit(None).cast(target).alias(each.name))
        elif as_nullable(source_field).type == as_nullable(each).type:
            columns.append(F.col(quoted(source_field.name)).alias(each.name))
        elif _is_wider(each, source_field):
            columns.append(F.col(quoted(source_field.name)).cast(target).alias(each.name))
        else:
            return f"values of {source_field.name}, {source_field.type}, are checked before they become {each.type}"
    return columns


def _is_wider(target: StructField, source: StructField) -> bool:
    """Whether both are whole numbers and the target holds all of the source's."""
    names = [each.type.name for each in (target, source) if isinstance(each.type, PrimitiveType)]
    return len(names) == 2 and all(name in _WIDTHS for name in names) and _WIDTHS.index(names[0]) >= _WIDTHS.index(names[1])


def _write(rows: DataFrame, plan: WritePlan, target: Path) -> None:
    """Have Spark write the rows, in a copy of the session with the settings above. Raises PySparkException."""
    for name, dtype in _partition_types(plan).items():
        if dtype == PrimitiveType("string"):
            rows = rows.where(_can_be_folder(name))
    user: Any = rows.sparkSession
    own = user._jsparkSession.cloneSession()
    own.conf().unset(_UNSET)
    for name, value in _SETTINGS.items():
        own.conf().set(name, value)
    jdf = class_in_jvm(user, "org.apache.spark.sql.classic.Dataset").ofRows(own, analysed(rows))
    # a row of this schema takes so many bytes in Spark's own estimate; files are smaller, and so below the table's size for them
    limit = max(1, file_size_of(dict(plan.metadata.configuration)) // max(1, int(jdf.schema().defaultSize())))
    limit = min(limit, plan.max_records_per_file or limit)
    codec = plan.compression or COMPRESSION
    writer = (
        DataFrameWriter(DataFrame(jdf, user))
        .options(**_OPTIONS, compression="lz4_raw" if codec == "lz4" else codec, maxRecordsPerFile=limit)
        .partitionBy(*plan.metadata.partition_columns)
    )
    writer.mode("error").parquet(f"file://{target}")


def _can_be_folder(name: str) -> Column:
    """True; the job fails if the folder's name would not tell the text."""
    text = F.col(quoted(name))
    tells = (
        (F.octet_length(text) == F.char_length(text))
        & (F.char_length(text) <= _text_max(name))
        & (text != HIVE_DEFAULT_PARTITION)
        & ~F.contains(text, F.lit("\0"))
    )
    return F.when(text.isNull() | tells, F.lit(True)).otherwise(F.raise_error(F.lit(_NO_FOLDER)).cast("boolean"))


def _staged(target: Path, plan: WritePlan) -> Iterator[StagedFile | None]:
    """The files below a folder in the order of their names; None for one whose folders do not tell its partition."""
    types = _partition_types(plan)
    for folder, _, names in sorted(os.walk(target)):
        parts = Path(folder).relative_to(target).parts
        for name in sorted(names):
            if name.startswith(("_", ".")):
                continue
            values = _values(parts, types)
            yield None if values is None else StagedFile(Path(folder, name), values)


def _values(parts: tuple[str, ...], types: Mapping[str, PrimitiveType]) -> dict[str, str | None] | None:
    if len(parts) != len(types):
        return None
    values: dict[str, str | None] = {}
    for part, (column, dtype) in zip(parts, types.items(), strict=True):
        name, _, text = part.partition("=")
        if _unescaped(name) != column:
            return None
        try:
            values[column] = None if text == HIVE_DEFAULT_PARTITION else _in_log(_unescaped(text), dtype)
        except (KeyError, ValueError, InvalidOperation, SchemaMismatch):
            return None
    return values


def _unescaped(text: str) -> str:
    """Like ExternalCatalogUtils.unescapePathName: one character per escape, whatever its encoding."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _in_log(text: str, dtype: PrimitiveType) -> str | None:
    """A value that Spark wrote as a folder's name, as the log has it. Raises ValueError and the like if it is no value of the type."""
    match kind(dtype):
        case "integer":
            return encode_value(int(text), dtype)
        case "decimal":
            return encode_value(Decimal(text), dtype)
        case "date":
            return encode_value(date.fromisoformat(text), dtype)
        case "boolean":
            return encode_value({"true": True, "false": False}[text], dtype)
    return encode_value(text, dtype)
