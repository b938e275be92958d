"""Spark's own Parquet scan of given files of a table: which stores it reaches, the frame of the files' rows, the version that a plan reads.

The scan asks for its files when it is planned, see `file_index`. Where Spark could not read them, the answer is the reason as a text.
Its options name the table and the version: so plans say what they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...storage.actions.uris import absolute
from ...storage.data.row_ids import RowIdColumns
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from ...storage.schema.partitions import uri_to_path
from ...storage.schema.schema import StructType, void_columns
from ...storage.stores.location import normalise
from ...storage.stores.storage_options import StorageOptions
from ..jvm import analysed, called, class_in_jvm, column_named, items, named, quoted
from ..schemas import for_new_table, to_spark
from .file_index import FileIndex, Files, Hidden, Lost, live_rows, prepare

_LOCATION: Final = "sluice.location"
_VERSION: Final = "sluice.version"
_CHOSEN: Final = "sluice.chosen"


@dataclass(frozen=True, slots=True)
class VersionRead:
    """A version of the table at a `location`. None: the latest one at the time of reading.

    `chosen`: the reader named the version or its time; otherwise it was the latest one when the frame was made.
    """

    location: str
    version: int | None
    chosen: bool


def options_of_scan(location: str, version: int, *, chosen: bool) -> dict[str, str]:
    """Options by which a scan of files says whose they are."""
    return {_LOCATION: location, _VERSION: str(version), _CHOSEN: str(chosen).lower()}


def versions_read(frame: DataFrame) -> Iterator[VersionRead]:
    """What the frame reads when it is evaluated, subqueries included, of tables whose scan says it. Rows that were kept say nothing."""
    plan = analysed(frame)
    for each in (plan, *items(plan.subqueriesAll())):
        for leaf in items(each.collectLeaves()):
            version = version_read(leaf)
            if version is not None:
                yield version


def is_of_files(leaf: Any) -> bool:
    """Whether a leaf of a plan is Spark's own scan of files."""
    return bool(leaf.nodeName() == "LogicalRelation" and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation")


def version_read(leaf: Any) -> VersionRead | None:
    """What a leaf of a plan reads; None if it is no scan of a table's version."""
    if is_of_files(leaf):
        location, version, chosen = (leaf.relation().options().get(name) for name in (_LOCATION, _VERSION, _CHOSEN))
        if not (location.isDefined() and version.isDefined()):
            return None
        return VersionRead(str(location.get()), int(version.get()), chosen.isDefined() and chosen.get() == "true")
    if leaf.nodeName() != "DataSourceV2Relation" or leaf.table().name() != "sluice":
        return None
    options = leaf.options()
    place, chosen, loaded, time, changes = (
        options.get(name) for name in ("path", "versionAsOf", "loadedVersion", "timestampAsOf", "readChangeFeed")
    )
    if place is None or time is not None or changes is not None:  # times are in the past, and changes are no state of the table
        return None
    version = loaded if chosen is None else chosen
    return VersionRead(normalise(str(place)), None if version is None else int(version), chosen is not None)


_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# Dates are in the calendar of the files.
_SCAN: Final = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
_SOURCES: Final = "org.apache.spark.sql.execution.datasources"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a scan needs to know of a table's version: `storage_options` are those of its store.

    With `row_ids` its rows come with their ids, in columns of these names. `whole` is the table's id if all files of the version are
    read: Spark may use the rows that it keeps of such a scan for another one. `chosen`: the reader named this version.
    """

    location: str
    storage_options: Mapping[str, str]
    schema: StructType
    partition_columns: tuple[str, ...]
    version: int
    row_ids: RowIdColumns | None = None
    whole: str | None = None
    chosen: bool = False


def why_not_native(spark: SparkSession, location: str, options: Mapping[str, str], schema: StructType) -> str | None:
    """The reason why Spark's own scan cannot be used, apart from the files; None if it can."""
    if any(void_columns(schema)):
        return "it has a column of type void, which Parquet lacks"
    if not hasattr(spark, "_jsparkSession"):
        return "this is Spark Connect, whose client has no JVM"
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
    spark: SparkSession, layout: Layout, files: pa.Table, lost: Lost | None, located: tuple[str, str] | None = None
) -> DataFrame | str:
    """The rows of these files without those that `lost` gives (None: none); or the reason why Spark cannot read them.

    `located` names two more columns: each row's file, as text its number in `files`, and its position in it. Conditions choose among the
    files when the frame is used, and only then `lost` is asked about those that they leave.
    """
    own = layout.location.partition(":")[0]
    other = next((uri for uri in _absolute(files) if (absolute(layout.location, uri) or own).partition(":")[0] != own), None)
    if other is not None:
        return f"{other} lies in another store"
    ids = layout.row_ids
    schema = layout.schema if ids is None else ids.beside(layout.schema)
    taken = {each.lower() for each in (*schema.names, *(located or ()))}
    number, row = located or (None, _unused("row", taken))
    bits = None if lost is None else _unused("bits", taken)
    base, version = (None, None) if ids is None else (_unused("base", taken), _unused("version", taken))
    hidden = Hidden(number, bits, base, version)
    frame = _scan(
        spark,
        layout,
        schema,
        Files(
            f"{layout.location} version {layout.version}",
            _hadoop_uri(layout.location),
            files,
            schema,
            layout.partition_columns,
            partial(_spelled, layout.location),
            lost or _none_lost,
            hidden,
            layout.whole,
        ),
    )
    is_plain = located is None and bits is None and ids is None
    if is_plain and schema.names[len(schema.names) - len(layout.partition_columns) :] == layout.partition_columns:
        return frame  # the scan has the partition columns last
    shown = {name: column_named(spark, name) for name in schema.names}
    if is_plain:
        return frame.select(*shown.values())
    position = called(frame.metadataColumn("_metadata"), "getField", "row_index")
    frame = frame.select(*shown.values(), *(column_named(spark, each.name) for each in hidden.fields), named(position, row))
    frame = frame if bits is None else live_rows(frame, bits, row)
    if ids is not None:
        first = F.expr(f"{quoted(base or '')} + {quoted(row)}")
        for name, default in ((ids.row_id, first), (ids.commit_version, column_named(spark, version or ""))):
            shown[name] = named(F.coalesce(shown[name], default), name)
    return frame.select(*shown.values(), *(column_named(spark, name) for name in located or ()))


def _scan(spark: SparkSession, layout: Layout, schema: StructType, files: Files) -> DataFrame:
    """Spark's scan of files: the columns that these have, and then those whose values the log has."""
    prepare(spark)
    index = FileIndex(spark, files)
    stored = StructType(each for each in schema.fields if each.name not in layout.partition_columns)
    session = cast("Any", spark._jsparkSession)
    whose = options_of_scan(layout.location, layout.version, chosen=layout.chosen)
    options = hadoop_options(layout.location, layout.storage_options) | whose | _SCAN
    relation = class_in_jvm(spark, f"{_SOURCES}.HadoopFsRelation")(
        index,
        index.schema,
        class_in_jvm(spark, "org.apache.spark.sql.types.DataType").fromJson(to_spark(for_new_table(stored)).json()),
        class_in_jvm(spark, "scala.Option").empty(),
        class_in_jvm(spark, f"{_SOURCES}.parquet.ParquetFileFormat")(),
        class_in_jvm(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(options),
        session,
    )
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


def _absolute(files: pa.Table) -> list[str]:
    """The paths that may not be relative to the table's folder."""
    paths = files["path"]
    return list(paths.filter(pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, ":/"))).to_pylist())


def _spelled(location: str, uri: str) -> str:
    """A file's path as Hadoop spells it."""
    found = absolute(location, uri)
    return _hadoop_uri(f"{location}/{uri_to_path(uri)}" if found is None else found)


def _none_lost(_: pa.Table) -> Mapping[str, Rows]:
    return {}


def _unused(word: str, taken: set[str]) -> str:
    """A name for a column that the table lacks."""
    name = f"__sluice_{word}"
    while name in taken:
        name += "_"
    return name


def _hadoop_uri(location: str) -> str:
    return f"s3a://{location.removeprefix('s3://')}" if location.startswith("s3://") else location


def hadoop_options(location: str, options: Mapping[str, str]) -> dict[str, str]:
    """The store's options under hadoop-aws's names; options not given keep Spark's values."""
    if not location.startswith("s3://"):
        return {}
    given = StorageOptions.parse(options)
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


def column(name: str) -> Column:
    """The column with exactly this name, whatever characters it has."""
    return F.col(quoted(name))
