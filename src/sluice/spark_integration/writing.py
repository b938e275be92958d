"""DataFrames whose rows are committed in the user's own process, such as by a transaction over several tables: what fills in their columns,
and who writes their files.

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
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import StructType as SparkStruct
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from ..storage.actions import AddFile
from ..storage.actions.features import RowIdColumns, is_on
from ..storage.constants import COMPRESSION
from ..storage.data.numbers import TASKS_MAX, TaskNumbers
from ..storage.errors import InvalidRequest, PredicateError, SchemaMismatch
from ..storage.expressions.casts import convert
from ..storage.expressions.sql import outline_of
from ..storage.schema.datatypes import (
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_type,
    as_nullable,
    default_of,
    features_of_columns,
    generated_of,
    kind,
)
from ..storage.schema.identity import identities
from ..storage.schema.mapping import mapping_mode, physical, unmapped, with_field_ids
from ..storage.schema.partitions import HIVE_DEFAULT_PARTITION, encode_value
from ..storage.schema.schema import to_arrow
from ..storage.stores.local import LocalStore
from ..tables.client.property_rules import OPTIMIZE_WRITE, file_size_of
from ..tables.write.data_writing import StagedFile, WritePlan, adopt_files, why_rows_are_needed
from .active_session import copied, is_classic, set_to
from .data_source.writer import attempt, forget_finders, task_number
from .jvm import analysed, class_in_jvm, column_of, in_session, named, of_plan, quoted
from .scan.file_rows import unused
from .schemas import codec_named, from_spark, to_spark

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_RESULT: Final = SparkStruct().add("result", BinaryType())
SETTING: Final = "spark.databricks.delta.optimizeWrite.enabled"
CODEC: Final = "spark.sql.parquet.compression.codec"
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
        is_gathered = is_wanted(optimise, rows.sparkSession.conf.get(SETTING, "") or "", plan.metadata.configuration)
        reason = _why_not_in_copy(whole) if is_gathered else None
        if reason is not None:
            _log.info("rows for %s are not shuffled before they are written: %s", plan.address.location, reason)
        with gathered(whole, plan) if is_gathered and reason is None else nullcontext(whole) as frame:
            files = written_by_spark(frame, plan, label) if ids is None else "they bring their ids along"
            if isinstance(files, str):
                _log.info("rows for %s are written by Python tasks: %s", plan.address.location, files)
                return written_in_tasks(frame, plan, label, ids)
            return files

    return schema, write


def results_of(frame: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
    """What each of the tasks that compute a frame makes of its rows. A task that Spark runs twice counts once.

    Raises what PySpark does if a task fails. A Python data source would cost four more Python processes for each job: Spark looks it up,
    makes it, makes its writer and commits in processes of their own.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = task(batches)
        forget_finders()
        yield pa.record_batch({"result": pa.array([pickle.dumps(result)], pa.binary())})

    jdf: Any = getattr(frame, "_jdf", None)
    if jdf is None:  # Spark Connect
        results = frame.mapInArrow(run, _RESULT)
    else:  # the same without its test for pandas, which such functions do not need
        columns = [frame[quoted(name)] for name in frame.columns]
        applied: Any = UserDefinedFunction(run, _RESULT, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*columns)
        results = DataFrame(jdf.mapInArrow(applied._jc, False, None), frame.sparkSession)
    return [pickle.loads(each) for each in results.toArrow()["result"].to_pylist()]  # noqa: S301 - by the tasks above


def written_in_tasks(rows: DataFrame, plan: WritePlan, label: str, ids: RowIdColumns | None = None) -> list[AddFile]:
    """The files that Python tasks write of the rows by a plan; `ids` are columns in which the rows bring their ids along."""

    def write(batches: Iterator[pa.RecordBatch]) -> tuple[AddFile, ...]:
        return plan.write(batches, label=attempt(label), task=task_number(), row_ids=ids)

    return [file for files in results_of(rows, write) for file in files]


def as_session_says(plan: WritePlan, session: SparkSession) -> WritePlan:
    """The plan with what a session says of files and the plan leaves open: their codec, and the most rows of one."""
    limit = max(0, int(str(session.conf.get("spark.sql.files.maxRecordsPerFile")))) or None
    codec = plan.compression or codec_named(session.conf.get(CODEC, COMPRESSION) or COMPRESSION, CODEC)
    return replace(plan, compression=codec, max_records_per_file=plan.max_records_per_file or limit)


def _why_not_in_copy(rows: DataFrame) -> str | None:
    """Why rows cannot be computed in a copy of their session; None if they can."""
    if not is_classic(rows.sparkSession):
        return "this is Spark Connect"
    if "CollectMetrics" in analysed(rows).toString():
        return "their metrics are observed in the session of the DataFrame"
    return None


# -- optimised writes: rows are shuffled first -----------------------------------------------------------------------------


def is_wanted(told: bool | None, setting: str, configuration: Mapping[str, str]) -> bool:
    """Whether a write is optimised: the writer's option counts before the session's setting, that one before the table's property. Raises
    InvalidRequest for a setting that is neither true nor false.
    """
    if told is not None:
        return told
    if setting:
        if setting.lower() not in ("true", "false"):
            raise InvalidRequest(f"{SETTING} is {setting!r}; set it to true or false", option=SETTING)
        return setting.lower() == "true"
    return is_on(configuration, OPTIMIZE_WRITE)


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


_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
}
"""How Spark writes in any session: instants in microseconds, dates in today's calendar, variants in one piece, the committer known
here."""
_FIELD_IDS: Final = "spark.sql.parquet.fieldId.write.enabled"
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
_WIDTHS: Final[tuple[DataType, ...]] = tuple(PrimitiveType(name) for name in ("byte", "short", "integer", "long"))
"""Whole numbers: each type holds those of the ones before."""


def written_by_spark(rows: DataFrame, plan: WritePlan, label: str) -> tuple[AddFile, ...] | str:
    """The files that Spark writes of the rows, not visible yet; or the reason why rows have to go through Python tasks. The rows' schema
    fits the plan's. `label` distinguishes calls under one transaction. Raises the errors of the rows' own computation.
    """
    store = plan.address.store()
    if not isinstance(store, LocalStore):
        return "files by Spark's committers are known to be safe on the local disk only"
    reason = _why_not_in_copy(rows) or why_rows_are_needed(plan) or _why_not_partitions(plan)
    if reason is not None:
        return reason
    context: Any = rows.sparkSession.sparkContext
    if not context._jsc.sc().isLocal():
        return "executors may see another disk than this process"
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
        staged = _staged(target, plan)
        if staged is None:
            return "a folder's name does not tell its partition value"
        return adopt_files(plan, store, staged, label)


def _why_not_partitions(plan: WritePlan) -> str | None:
    """Why Spark's folders would not tell the partition values exactly."""
    for name, dtype in _partition_types(plan).items():
        if kind(dtype) not in ("string", "integer", "boolean", "date", "decimal"):
            return f"partition column {name} is of type {dtype}, which Spark's folders do not spell as the log does"
        if not name.isascii() or _text_max(name) < _TEXT_MIN:
            return f"partition column {name} has a long name, or one beyond ASCII"
    return None


def _partition_types(plan: WritePlan) -> dict[str, PrimitiveType]:
    """The partition columns as folders name them."""
    types = {each.name: each.type for each in physical(plan.schema).fields if isinstance(each.type, PrimitiveType)}
    return {name: types[name] for name in plan.metadata.physical_partitions}


def _text_max(name: str) -> int:
    """The longest text of ASCII of which a folder `name=text` can certainly be made; each character may take three."""
    return (_NAME_BYTES - 3 * len(name) - 1) // 3


def _columns(data: StructType, schema: StructType) -> list[Column] | str:
    """The columns of files from those of the data; or the reason why values need a closer look."""
    types = to_spark(with_field_ids(physical(schema)), field_ids=True)
    columns: list[Column] = []
    for each, plain, stored in zip(schema.fields, unmapped(schema).fields, types.fields, strict=True):
        source_field = data.get(each.name)
        if source_field is None or source_field.type == PrimitiveType("void"):
            value = F.lit(None).cast(stored.dataType)
        elif as_nullable(source_field).type == as_nullable(plain).type:
            value = F.col(quoted(source_field.name))
            value = value if plain.type == each.type else value.cast(stored.dataType)
        elif source_field.type in _WIDTHS and each.type in _WIDTHS[_WIDTHS.index(source_field.type) :]:
            value = F.col(quoted(source_field.name)).cast(stored.dataType)
        else:
            return f"values of {source_field.name}, {source_field.type}, are checked before they become {each.type}"
        columns.append(value.alias(stored.name, metadata=stored.metadata))
    return columns


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
    own.conf().set(_FIELD_IDS, str(mapping_mode(plan.metadata.configuration) != "none").lower())
    jdf = class_in_jvm(user, "org.apache.spark.sql.classic.Dataset").ofRows(own, analysed(rows))
    # a row of this schema takes so many bytes in Spark's own estimate; files are smaller, and so below the table's size for them
    limit = max(1, file_size_of(dict(plan.metadata.configuration)) // max(1, int(jdf.schema().defaultSize())))
    limit = min(limit, plan.max_records_per_file or limit)
    codec = plan.compression or COMPRESSION
    writer = DataFrameWriter(DataFrame(jdf, user)).partitionBy(*plan.metadata.physical_partitions).mode("error")
    writer = writer.options(**_OPTIONS, compression="lz4_raw" if codec == "lz4" else codec, maxRecordsPerFile=limit)
    writer.parquet(f"file://{target}")


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


def _staged(target: Path, plan: WritePlan) -> list[StagedFile] | None:
    """The files below a folder in the order of their names; None if a folder does not tell its partition."""
    types = _partition_types(plan)
    staged: list[StagedFile] = []
    for folder, _, names in sorted(os.walk(target)):
        files = [Path(folder, name) for name in sorted(names) if not name.startswith(("_", "."))]
        if not files:
            continue
        parts = Path(folder).relative_to(target).parts
        if len(parts) != len(types):
            return None
        values: dict[str, str | None] = {}
        for part, (column, dtype) in zip(parts, types.items(), strict=True):
            # as ExternalCatalogUtils.unescapePathName reads them: one character per escape, whatever its encoding
            name, _, text = part.partition("=")
            if unquote(name, "latin-1") != column:
                return None
            try:
                value = None if text == HIVE_DEFAULT_PARTITION else convert(unquote(text, "latin-1"), arrow_type(dtype))
                values[column] = None if value is None else encode_value(value, dtype)
            except (PredicateError, SchemaMismatch):
                return None
        staged += [StagedFile(file, values) for file in files]
    return staged


# -- columns that their writer fills in: defaults, and columns generated from others --------------------------------------

# Expressions mean the same in every session, and without Spark: they are resolved with ANSI rules and UTC as the time zone, in a copy of
# the session. What is resolved then becomes part of the rows' own plan.
_ROW_BITS: Final = 33
"""Of Spark's increasing ids the number of the row in its task; the task's is above them."""
_EXPRESSIONS: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.storeAssignmentPolicy": "ANSI",
}


def in_utc(spark: SparkSession) -> AbstractContextManager[SparkSession]:
    """A copy of a classic session in which expressions of tables are resolved; it is the thread's own within the block."""
    return copied(spark, _EXPRESSIONS)


def default_value(spark: SparkSession, field: StructField) -> Column:
    """The default of a column, in its type; null without one. Raises AnalysisException if Spark cannot resolve it."""
    with in_utc(spark) as own:
        value = F.expr(default_of(field) or "NULL").cast(_kind(field)).alias(field.name)
        plan = analysed(own.createDataFrame([], SparkStruct([])).select(value))
        return column_of(spark, plan.projectList().apply(0).child())


def filled(frame: DataFrame, plan: WritePlan) -> tuple[DataFrame, WritePlan]:
    """The rows with computed and default columns filled in and given values checked, and a plan that says that this is done.

    Over Spark Connect, and if no column has to be filled in, both are returned unchanged: the plan's writer fills in then. A job that
    meets a wrong value of a generated column fails with ConstraintViolated.
    """
    schema = plan.schema
    if plan.computed or not features_of_columns(schema) or not is_classic(frame.sparkSession):
        return frame, plan
    spelled = {name.lower(): name for name in frame.columns}
    lacking = [each for each in schema.fields if each.name.lower() not in spelled]
    values = [F.lit(None).cast(_kind(each)) if default_of(each) is None else default_value(frame.sparkSession, each) for each in lacking]
    present: list[Any] = ["*"] if plan.numbers is None else [F.col(quoted(name)) for name in frame.columns]
    if plan.numbers is not None:
        counted = unused("counted", {each.lower() for each in (*frame.columns, *schema.names)})
        frame = frame.select("*", F.monotonically_increasing_id().alias(counted))
        made = numbers_of_tasks(schema, plan.numbers, F.col(quoted(counted)))
        values = [made.get(each.name, value) for value, each in zip(values, lacking, strict=True)]
    columns = [value.alias(each.name) for value, each in zip(values, lacking, strict=True)]
    whole = frame.select(*present, *columns) if columns else frame
    has_value = {each.name: F.lit(each not in lacking) for each in schema.fields if generated_of(each) is not None}
    return _computed(whole, schema, has_value, spelled), replace(plan, computed=True)


def rows_at_most(frame: DataFrame) -> int | None:
    """How many rows a frame has at most, if Spark knows it without reading any."""
    if not is_classic(frame.sparkSession):
        return None
    jdf: Any = frame._jdf
    most = jdf.queryExecution().optimizedPlan().maxRows()
    return int(most.get()) if most.isDefined() else None


def numbers_of_tasks(schema: StructType, numbers: TaskNumbers, counted: Column) -> dict[str, Column]:
    """The values of identity columns, by name; `counted` are Spark's increasing ids. A job in which numbers do not suffice fails."""
    task, row = F.shiftright(counted, _ROW_BITS), counted.bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    # the line is read by `errors.original`
    message = (
        f"\nsluice.storage.errors.InvalidRequest: a task has more than {numbers.rows} rows, or there are more than {TASKS_MAX} tasks, for "
        "which it has numbers of an identity column: write with more or fewer tasks, by df.repartition(n)\n"
    )
    failed = F.raise_error(F.lit(message)).cast("bigint")
    number = F.when((row < numbers.rows) & (task < TASKS_MAX), task * numbers.rows + row + numbers.first).otherwise(failed)
    return {each.name: number * F.lit(each.step).cast("bigint") + F.lit(each.start).cast("bigint") for each in identities(schema)}


def renewed(frame: DataFrame, schema: StructType, given: Mapping[str, str | bool], makes: Column) -> DataFrame:
    """Rows that are changed or added, with the values of generated columns that nobody gave; given ones are checked.

    `given` says of each generated column whether it was given: True, False, or the name of a boolean column, which is dropped at the end.
    `makes`: whether a row makes a new one.
    """
    flags = {name: F.col(quoted(flag)) if isinstance(flag, str) else F.lit(flag) for name, flag in given.items()}
    return _computed(frame, schema, flags, {}, makes).drop(*(flag for flag in given.values() if isinstance(flag, str)))


def _computed(
    frame: DataFrame, schema: StructType, given: Mapping[str, Column], spelled: Mapping[str, str], makes: Column | None = None
) -> DataFrame:
    """The frame with right values in its generated columns. `given` says of each of them whether it was given, `spelled` has the frame's
    spelling of names in lower case.
    """
    if not given:
        return frame
    made = {spelled.get(name.lower(), name): schema.named(name) for name in given}
    session = frame.sparkSession
    with in_utc(session) as own:
        there = in_session(own, frame)
        columns: list[Column] = []
        for name in there.columns:
            value = F.col(quoted(name))
            if name in made:
                value = _value(made[name], value, given[made[name].name])
                value = value if makes is None else F.when(makes, value)
            columns.append(named(value, name))
        plan = analysed(there.select(*columns))
    return of_plan(session, plan)


def _value(field: StructField, given: Column, was_given: Column) -> Column:
    """The expression's value; a given one that differs fails the job, with the error that Python tasks would raise."""
    text = generated_of(field) or ""
    expected = F.expr(text).cast(_kind(field))
    # the line is read by `errors.original`
    told = (
        f"\nsluice.storage.errors.ConstraintViolated: a row breaks the constraint generated column {field.name} "
        f"({quoted(field.name)} <=> ({text})): "
    )
    shown = [F.col(quoted(name)) for name in sorted(outline_of(text, clock=False).columns, key=str.lower)]
    values = F.to_json(F.struct(*shown, given.alias(field.name)), {"ignoreNullFields": "false"})
    failed = F.raise_error(F.concat(F.lit(told), values, F.lit("; leave the column out, and it is computed\n")))
    return F.when(was_given & ~given.eqNullSafe(expected), failed).when(was_given, given).otherwise(expected)


def _kind(field: StructField) -> SparkType:
    return to_spark(StructType([field])).fields[0].dataType
