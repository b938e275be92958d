"""`sluice.read`: a version of a table as a DataFrame, through Spark's own Parquet scan if possible.

Spark's scan is faster than any Python data source, prunes columns, and pushes every filter into the files. It gets the files
of the snapshot, and lists nothing. If the JVM cannot reach the object store, or Spark's result would differ from the log,
the data source reads instead; the rows are the same.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType as SparkStruct

from ...storage.errors import InvalidRequest, MissingObject
from ...storage.expressions.nodes import walk
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import PrimitiveType, StructField, StructType, void_columns
from ...storage.stores.location import open_store
from ...storage.stores.s3_options import S3Options
from ...tables.read.table_snapshot import TableSnapshot
from ...tables.table import Table
from ..active_session import use_session
from ..options import default_storage_options, parse_timestamp
from ..schemas import to_spark
from .deletions import deleted_rows, without_deleted
from .folders import spelled_paths

__all__ = ["read"]

_log = logging.getLogger(__name__)

_UTC: Final = frozenset({"UTC", "ETC/UTC", "GMT", "Z", "UCT", "ZULU", "UNIVERSAL"})
_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# Dates are in the calendar of the files.
_SCAN: Final = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
# From this number of paths on, Spark examines files in a job with one task for each.
_LISTING_BY_JOB: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def read(
    spark: SparkSession,
    location: str | os.PathLike[str],
    version: int | None = None,
    timestamp: int | str | None = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    consistency: str = "latest",
) -> DataFrame:
    """One version of a table: the latest at the time of the call, or that of a number or time (ms since the epoch, or UTC text).

    The DataFrame keeps that version, whatever is committed later. `where` is a condition in SQL with UTC as its time zone;
    files that cannot satisfy it are skipped at once. `storage_options` default to those given to `configure`. Raises the
    errors of `Table.open` and `Table.snapshot`, PredicateError, MissingObject.
    """
    use_session(spark)
    options = default_storage_options() if storage_options is None else dict(storage_options)
    table = Table.open(location, coordinator=coordinator, storage_options=options, consistency=consistency)
    snapshot = table.snapshot(version, parse_timestamp(timestamp) if isinstance(timestamp, str) else timestamp)
    wanted = _wanted(snapshot.struct, columns)
    predicate = snapshot.predicate(where)
    # The list of files may be long: if the data source will read it, it is not read here.
    frame: DataFrame | str | None = _why_not_by_spark(spark, table.location, options, snapshot.struct, predicate)
    if frame is None:
        files = snapshot.files(predicate)
        if not files.num_rows:
            return spark.createDataFrame([], to_spark(wanted))
        frame = _by_spark(spark, table.location, options, snapshot, files)
    if isinstance(frame, str):
        _log.info("%s is read through the data source: %s", table.location, frame)
        told = {"versionAsOf": str(snapshot.version), "consistency": consistency, **{f"s3.{name}": text for name, text in options.items()}}
        told |= {name: text for name, text in {"coordinator": coordinator, "where": where}.items() if text is not None}
        return spark.read.format("sluice").options(**told).schema(to_spark(wanted)).load(table.location)
    if predicate is not None:
        frame = frame.where(predicate.to_sql())
    return frame.select(*[_column(each.name) for each in wanted.fields])


def _wanted(schema: StructType, columns: Sequence[str] | None) -> StructType:
    if columns is None:
        return schema
    fields: list[StructField] = []
    for name in columns:
        field = schema.get(name)
        if field is None:
            raise InvalidRequest(f"column {name!r} is not in the table; its columns are {', '.join(schema.names)}", column=name)
        fields.append(field)
    return StructType(fields)


def _by_spark(
    spark: SparkSession,
    location: str,
    options: Mapping[str, str],
    snapshot: TableSnapshot,
    files: pa.Table,
) -> DataFrame | str:
    """The rows of these files through Spark's own scan, or the reason why it cannot read them."""
    root = _hadoop_uri(location)
    paths = spelled_paths(root, location, files, snapshot.struct, snapshot.partition_columns)
    if isinstance(paths, str):
        return paths
    has_vector = pc.is_valid(files["deletion_vector"]).to_pylist()
    deleted = deleted_rows(open_store(location, options), files)
    if isinstance(deleted, str):
        return deleted
    hadoop = _hadoop_options(location, options)
    whole = [path for path, masked in zip(paths, has_vector, strict=True) if not masked]
    frames = [_scan(spark, root, hadoop, whole, snapshot)] if whole else []
    if len(whole) < len(paths):
        others = [path for path, masked in zip(paths, has_vector, strict=True) if masked]
        frames.append(_scan(spark, root, hadoop, others, snapshot, deleted))
    return reduce(DataFrame.union, frames)


def _why_not_by_spark(
    spark: SparkSession, location: str, options: Mapping[str, str], schema: StructType, predicate: Predicate | None
) -> str | None:
    """The reason why Spark's own scan cannot be used, apart from the files; None if it can."""
    if any(void_columns(schema)):
        return "it has a column of type void, which Parquet lacks"
    if not hasattr(spark, "_jsparkSession"):
        return "this is Spark Connect, which does not take the files of a snapshot"
    if predicate is not None and _depends_on_zone(predicate):
        zone = str(spark.conf.get("spark.sql.session.timeZone"))
        if zone.upper() not in _UTC:
            return f"the condition's times are in UTC, the session's in {zone}"
    if location.startswith("file://"):
        return None
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    configuration = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    if not location.startswith("s3://") or configuration.getClassByNameOrNull(_S3A) is None:
        return "Spark has no file system for it (for S3 it is hadoop-aws)"
    for name, value in _hadoop_options(location, options).items():
        configuration.set(name, value)
    path = jvm.org.apache.hadoop.fs.Path(_hadoop_uri(location) + "/_delta_log")
    try:
        path.getFileSystem(configuration).getFileStatus(path)
    except Py4JJavaError as error:
        return f"Spark does not reach it: {error.java_exception.toString()}"
    return None


def _depends_on_zone(predicate: Predicate) -> bool:
    kinds = (getattr(each, "type", None) for each in walk(predicate.root))
    return any(kind is not None and pa.types.is_timestamp(kind) for kind in kinds)


def _hadoop_uri(location: str) -> str:
    return f"s3a://{location.removeprefix('s3://')}" if location.startswith("s3://") else location


def _hadoop_options(location: str, options: Mapping[str, str]) -> dict[str, str]:
    """The store's options under hadoop-aws's names; options not given keep Spark's values."""
    if not location.startswith("s3://"):
        return {}
    given = S3Options.parse(options)
    path_style = given.path_style if given.path_style is not None else given.endpoint_url is not None or None
    words = {
        "fs.s3a.endpoint": given.endpoint_url,
        "fs.s3a.endpoint.region": given.region,
        "fs.s3a.path.style.access": None if path_style is None else str(path_style).lower(),
        "fs.s3a.access.key": given.access_key_id,
        "fs.s3a.secret.key": given.secret_access_key,
        "fs.s3a.session.token": given.session_token,
    }
    return {name: value for name, value in words.items() if value is not None}


def _scan(
    spark: SparkSession,
    root: str,
    options: Mapping[str, str],
    paths: Sequence[str],
    snapshot: TableSnapshot,
    deleted: pa.Table | None = None,
) -> DataFrame:
    """Spark's scan of these files with the table's columns, types and names, without the `deleted` rows."""
    schema, partitions = snapshot.struct, frozenset(snapshot.partition_columns)
    # partition columns as the log's text: Spark's own parsing of folder names depends on its settings
    as_text = StructType(StructField(e.name, PrimitiveType("string") if e.name in partitions else e.type) for e in schema.fields)
    reader = spark.read.schema(to_spark(as_text)).options(basePath=root, **_SCAN, **options)
    with _listing_here(spark, only=root.startswith("file:")):
        frame = _parquet(spark, reader, paths, snapshot)
    types: SparkStruct = to_spark(schema)
    columns = [
        _column(each.name).cast(types[each.name].dataType).alias(each.name) if each.name in partitions else _column(each.name)
        for each in schema.fields
    ]
    if deleted is None:
        return frame.select(*columns)
    return without_deleted(spark, frame, deleted, dict(zip(schema.names, columns, strict=True)))


@contextmanager
def _listing_here(spark: SparkSession, *, only: bool) -> Iterator[None]:
    """On the local disk, examining a file is far cheaper than a task."""
    before = spark.conf.get(_LISTING_BY_JOB)
    if only:
        spark.conf.set(_LISTING_BY_JOB, str(2**31 - 1))
    try:
        yield
    finally:
        spark.conf.set(_LISTING_BY_JOB, str(before))


def _parquet(spark: SparkSession, reader: Any, paths: Sequence[str], snapshot: TableSnapshot) -> DataFrame:
    # as one text, since a Python list would cross to the JVM element by element; paths contain no NUL
    jvm: Any = spark._jvm
    array = jvm.java.util.regex.Pattern.compile("\0").split("\0".join(paths))
    try:
        return DataFrame(reader._jreader.parquet(array), spark)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = (error.getMessageParameters() or {}).get("path", "")
        raise MissingObject(
            f"data file {path} of version {snapshot.version} is gone; restore it, or read a version that does not need it",
            path=path,
            version=snapshot.version,
        ) from error


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
