"""Spark's own Parquet scan of given files of a table: which stores it reaches, and the frame of the files' rows.

It gets the files by path and lists nothing. Where it could not read them, or would read something else than the log says, the
answer is the reason as a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType as SparkStruct

from ...storage.actions.uris import key_inside
from ...storage.data.row_ids import RowIdColumns
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from ...storage.errors import MissingObject
from ...storage.schema.schema import PrimitiveType, StructField, StructType, void_columns
from ...storage.stores.s3_options import S3Options
from ..jvm import called, class_in_jvm, jvm_of, named, quoted
from ..schemas import to_spark
from .deletions import bitmaps_of, facts_of, without_deleted
from .folders import spelled_paths
from .versions import options_of_scan

_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# Dates are in the calendar of the files.
_SCAN: Final = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
# From this number of paths on, Spark examines files in a job with one task for each.
_LISTING_BY_JOB: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
# What java.net.URI quotes in a path; it leaves other characters beyond ASCII as they are.
_QUOTED: Final = re.compile(r"[\x00-\x20\"#%<>?\[\\\]^`{|}\x7f]")


@dataclass(frozen=True, slots=True)
class Layout:
    """What a scan needs to know of a table's version: `storage_options` are those of its store.

    With `row_ids` its rows come with their ids, in columns of these names. `chosen`: the reader named this version.
    """

    location: str
    storage_options: Mapping[str, str]
    schema: StructType
    partition_columns: tuple[str, ...]
    version: int
    row_ids: RowIdColumns | None = None
    chosen: bool = False


def why_not_native(spark: SparkSession, location: str, options: Mapping[str, str], schema: StructType) -> str | None:
    """The reason why Spark's own scan cannot be used, apart from the files; None if it can."""
    if any(void_columns(schema)):
        return "it has a column of type void, which Parquet lacks"
    if not hasattr(spark, "_jsparkSession"):
        return "this is Spark Connect, which does not take the files of a snapshot"
    if location.startswith("file://"):
        return None
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    configuration = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    if not location.startswith("s3://") or configuration.getClassByNameOrNull(_S3A) is None:
        return "Spark has no file system for it (for S3 it is hadoop-aws)"
    for name, value in hadoop_options(location, options).items():
        configuration.set(name, value)
    path = jvm.org.apache.hadoop.fs.Path(_hadoop_uri(location) + "/_delta_log")
    try:
        path.getFileSystem(configuration).getFileStatus(path)
    except Py4JJavaError as error:
        return f"Spark does not reach it: {error.java_exception.toString()}"
    return None


def rows_of_files(
    spark: SparkSession, layout: Layout, files: pa.Table, lost: Mapping[str, Rows], located: tuple[str, str] | None = None
) -> DataFrame | str:
    """The rows of these files without those `lost`, by the files' paths in the log; or the reason why Spark cannot read them.

    `located` names two more columns: each row's file, as `file_key` spells it, and its position in it. There must be a file.
    """
    root = _hadoop_uri(layout.location)
    paths = spelled_paths(root, layout.location, files, layout.schema, layout.partition_columns)
    if isinstance(paths, str):
        return paths
    if layout.row_ids is not None:
        facts = facts_of(files, [file_key(layout, uri) for uri in files["path"].to_pylist()], lost)
        return facts if isinstance(facts, str) else _scan(spark, root, layout, paths, located, facts)
    has_lost = [uri in lost for uri in files["path"].to_pylist()]
    deleted = bitmaps_of({file_key(layout, uri): lost[uri] for uri in files["path"].to_pylist() if uri in lost})
    if isinstance(deleted, str):
        return deleted
    whole = [path for path, masked in zip(paths, has_lost, strict=True) if not masked]
    frames = [_scan(spark, root, layout, whole, located)] if whole else []
    if len(whole) < len(paths):
        others = [path for path, masked in zip(paths, has_lost, strict=True) if masked]
        frames.append(_scan(spark, root, layout, others, located, deleted))
    return reduce(DataFrame.union, frames)


def no_rows(spark: SparkSession, layout: Layout) -> DataFrame:
    """A scan of no files, which says like the others what it reads: what is written may depend on there being no rows."""
    schema = layout.schema if layout.row_ids is None else layout.row_ids.beside(layout.schema)
    jvm, session = jvm_of(spark), cast("Any", spark)._jsparkSession
    sources, utilities = jvm.org.apache.spark.sql.execution.datasources, jvm.org.apache.spark.api.python.PythonUtils
    nothing, types = class_in_jvm(spark, "scala.Option").empty(), jvm.org.apache.spark.sql.types
    cache = getattr(getattr(sources, "NoopCache$"), "MODULE$")
    files = sources.InMemoryFileIndex(session, utilities.toSeq([]), utilities.toScalaMap({}), nothing, cache, nothing, nothing)
    options = utilities.toScalaMap(options_of_scan(layout.location, layout.version, chosen=layout.chosen))
    columns = types.DataType.fromJson(to_spark(schema).json())
    form = sources.parquet.ParquetFileFormat()
    relation = sources.HadoopFsRelation(files, types.StructType(), columns, nothing, form, options, session)
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


def file_key(layout: Layout, uri: str) -> str:
    """A file as Spark names it in `_metadata.file_path`; `uri` is its path in the log. The file is one that Spark can scan."""
    path = f"{_hadoop_uri(layout.location)}/{key_inside(layout.location, uri)}"
    scheme, _, rest = path.partition(":")
    # without an authority Hadoop writes one slash
    rest = "/" + rest.lstrip("/") if rest.startswith("///") else rest
    return f"{scheme}:" + _QUOTED.sub(lambda match: f"%{ord(match[0]):02X}", rest)


def _hadoop_uri(location: str) -> str:
    return f"s3a://{location.removeprefix('s3://')}" if location.startswith("s3://") else location


def hadoop_options(location: str, options: Mapping[str, str]) -> dict[str, str]:
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
    layout: Layout,
    paths: Sequence[str],
    located: tuple[str, str] | None,
    deleted: pa.Table | None = None,
) -> DataFrame:
    """Spark's scan of these files with the table's columns, types and names, without the `deleted` rows.

    For `layout.row_ids`, `deleted` has all files, with the ids of their rows (`facts_of`).
    """
    ids, partitions = layout.row_ids, frozenset(layout.partition_columns)
    schema = layout.schema if ids is None else ids.beside(layout.schema)
    # partition columns as the log's text: Spark's own parsing of folder names depends on its settings
    as_text = StructType(StructField(e.name, PrimitiveType("string") if e.name in partitions else e.type) for e in schema.fields)
    options = hadoop_options(layout.location, layout.storage_options) | options_of_scan(
        layout.location, layout.version, chosen=layout.chosen
    )
    reader = spark.read.schema(to_spark(as_text)).options(basePath=root, **_SCAN, **options)
    with _listing_here(spark, only=root.startswith("file:")):
        frame = _parquet(spark, reader, paths, layout.version)
    types: SparkStruct = to_spark(schema)
    columns = {
        each.name: named(column(each.name).cast(types[each.name].dataType), each.name)
        if each.name in partitions
        else frame[quoted(each.name)]
        for each in schema.fields
    }
    if located is not None:
        hidden = frame.metadataColumn("_metadata")
        columns |= {
            name: named(called(hidden, "getField", field), name) for name, field in zip(located, ("file_path", "row_index"), strict=True)
        }
    if deleted is None:
        return frame.select(*columns.values())
    return without_deleted(spark, frame, deleted, columns, None if ids is None else ids.names)


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


def _parquet(spark: SparkSession, reader: Any, paths: Sequence[str], version: int) -> DataFrame:
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
            f"data file {path} of version {version} is gone; restore it, or read a version that does not need it",
            path=path,
            version=version,
        ) from error


def column(name: str) -> Column:
    """The column with exactly this name, whatever characters it has."""
    return F.col(quoted(name))
