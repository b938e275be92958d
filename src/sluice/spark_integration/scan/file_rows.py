"""The rows of given files of a table, by Spark's own Parquet scan or by Python tasks, and the version that a plan reads.

Spark's scan asks for its files when it is planned, see `file_index`. Where Spark cannot read them, the answer is the reason as a text. Its
options name the table and the version: so plans say what they read.

Python tasks read what Spark's scan cannot: a store that the JVM does not reach (S3 without hadoop-aws), files outside of the table's
folder, and folders that do not match their partition. Tasks read the columns that are needed, skip row groups by the predicate, and leave
out rows that do not satisfy it, before rows go to the JVM. They load this module, so it imports only what they need.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType
from pyspark.sql.types import StructType as SparkStruct

from ...storage.actions.features import RowIdColumns, with_row_ids
from ...storage.actions.uris import absolute
from ...storage.data.scan import TableScan
from ...storage.data.vectors import Rows, decode_payload, encode_payload
from ...storage.dataclass import dataclass
from ...storage.expressions.evaluate import may_fail
from ...storage.pruning.predicate import Predicate
from ...storage.schema.conform import adapt
from ...storage.schema.mapping import for_scan, is_found_by_id, is_mapped
from ...storage.schema.schema import StructField, StructType, parse_schema, schema_to_json, void_columns
from ...storage.stores.location import normalise, open_store
from ...storage.stores.storage_options import StorageOptions
from ..data_source.reader import balanced
from ..jvm import analysed, called, class_in_jvm, column_named, items, named, quoted
from ..schemas import for_new_table, to_spark
from .file_index import FileIndex, Hidden, Layout, Lost, hadoop_uri, live_rows, prepare

_NAME: Final = "sluice_places"
_STORAGE_PREFIX: Final = "s3."
_NEEDED: Final = ("path", "partition_values", "size", "base_row_id", "default_row_commit_version")
_LOCATION: Final = "sluice.location"
_VERSION: Final = "sluice.version"
_CHOSEN: Final = "sluice.chosen"


@dataclass(frozen=True, slots=True)
class VersionRead:
    """A version of the table at a `location`. None: the latest one at the time of reading. `chosen`: the reader named the version or its
    time; otherwise it was the latest one when the frame was made.
    """

    location: str
    version: int | None
    chosen: bool


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
    names = ("path", "versionAsOf", "loadedVersion", "timestampAsOf", "readChangeFeed")
    place, chosen, loaded, time, changes = map(options.get, names)
    if place is None or time is not None or changes is not None:  # times are in the past, and changes are no state of the table
        return None
    version = loaded if chosen is None else chosen
    return VersionRead(normalise(str(place)), None if version is None else int(version), chosen is not None)


_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# Dates are in the calendar of the files.
_SCAN: Final = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
_BY_ID: Final = "spark.sql.parquet.fieldId.read.enabled"
_SOURCES: Final = "org.apache.spark.sql.execution.datasources"


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
    path = jvm.org.apache.hadoop.fs.Path(hadoop_uri(location) + "/_delta_log")
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
    own, paths = layout.location.partition(":")[0], files["path"]
    # the others are relative to the table's folder
    absolutes = paths.filter(pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, ":/"))).to_pylist()
    other = next((uri for uri in absolutes if (absolute(layout.location, uri) or own).partition(":")[0] != own), None)
    if other is not None:
        return f"{other} lies in another store"
    ids = layout.row_ids
    logical = with_row_ids(layout.schema, ids)
    schema = for_scan(logical)
    scanned = dict(zip(logical.names, schema.names, strict=True))
    layout = replace(layout, partition_columns=tuple([scanned[name] for name in layout.partition_columns]))
    taken = {each.lower() for each in (*schema.names, *logical.names, *(located or ()))}
    number, row = located or (None, unused("row", taken))
    bits = None if lost is None else unused("bits", taken)
    base, version = (None, None) if ids is None else (unused("base", taken), unused("version", taken))
    hidden = Hidden(number, bits, base, version)
    frame = _scan(spark, layout, schema, FileIndex(spark, layout, schema, files, lost, hidden))
    is_plain = located is None and bits is None and ids is None and not is_mapped(logical)
    if is_plain and schema.names[len(schema.names) - len(layout.partition_columns) :] == layout.partition_columns:
        return frame  # the scan has the partition columns last
    columns = [_as_in_table(spark, *each) for each in zip(schema.fields, logical.fields, strict=True)]
    if located is None and bits is None and ids is None:
        return frame.select(*columns)
    position = called(frame.metadataColumn("_metadata"), "getField", "row_index")
    frame = frame.select(*columns, *(column_named(spark, each.name) for each in hidden.fields), named(position, row))
    frame = frame if bits is None else live_rows(frame, bits, row)
    shown = {name: column_named(spark, name) for name in logical.names}
    if ids is not None:
        first = F.expr(f"{quoted(base or '')} + {quoted(row)}")
        for name, default in ((ids.row_id, first), (ids.commit_version, column_named(spark, version or ""))):
            shown[name] = named(F.coalesce(shown[name], default), name)
    return frame.select(*shown.values(), *(column_named(spark, name) for name in located or ()))


def _as_in_table(spark: SparkSession, scanned: StructField, field: StructField) -> Column:
    """A column of a scan under the table's name for it; so are the fields in it."""
    column = column_named(spark, scanned.name)
    if scanned.type != field.type:
        column = column.cast(to_spark(for_new_table(StructType([field]))).fields[0].dataType)
    return column if scanned.name == field.name else named(column, field.name)


def _scan(spark: SparkSession, layout: Layout, schema: StructType, index: FileIndex) -> DataFrame:
    """Spark's scan of files: the columns that these have, and then those whose values the log has."""
    prepare(spark)
    stored = StructType([each for each in schema.fields if each.name not in layout.partition_columns])
    session = cast("Any", spark._jsparkSession)
    whose = {_LOCATION: layout.location, _VERSION: str(layout.version), _CHOSEN: str(layout.chosen).lower()}
    options = hadoop_options(layout.location, layout.storage_options) | whose | _SCAN
    of_scan = session
    if is_found_by_id(stored):  # the scan does what its own session says
        of_scan = session.cloneSession()
        of_scan.conf().set(_BY_ID, "true")
    relation = class_in_jvm(spark, f"{_SOURCES}.HadoopFsRelation")(
        index,
        index.schema,
        class_in_jvm(spark, "org.apache.spark.sql.types.DataType").fromJson(to_spark(for_new_table(stored), field_ids=True).json()),
        class_in_jvm(spark, "scala.Option").empty(),
        class_in_jvm(spark, f"{_SOURCES}.parquet.ParquetFileFormat")(),
        class_in_jvm(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(options),
        of_scan,
    )
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


def unused(word: str, taken: set[str]) -> str:
    """A name for a column that the table lacks."""
    name = f"__sluice_{word}"
    while name in taken:
        name += "_"
    return name


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


# -- rows that Python tasks read -----------------------------------------------------------------------------------------


def rows_of(spark: SparkSession, layout: Layout, files: pa.Table, lost: Mapping[str, Rows]) -> DataFrame:
    """The rows of these files without those `lost`: by Spark's own scan if it can read them, otherwise by Python tasks."""
    frame = rows_by_spark(spark, layout, files, lost)
    return rows_by_python(spark, layout, files, lost) if isinstance(frame, str) else frame


def rows_by_spark(
    spark: SparkSession, layout: Layout, files: pa.Table, lost: Mapping[str, Rows], located: tuple[str, str] | None = None
) -> DataFrame | str:
    """Like `rows_of_files`, if Spark's own scan can be used at all."""
    reason = why_not_native(spark, layout.location, layout.storage_options, layout.schema)
    return rows_of_files(spark, layout, files, (lambda _: lost) if lost else None, located) if reason is None else reason


def rows_by_python(
    spark: SparkSession,
    layout: Layout,
    files: pa.Table,
    lost: Mapping[str, Rows],
    located: tuple[str, str] | None = None,
    *,
    columns: Collection[str] | None = None,
    predicate: Predicate | None = None,
) -> DataFrame:
    """The rows of these files without those `lost`, by the files' paths in the log.

    `located` names two more columns: each row's file, as its number in `files`, and its position in it. Of the table's columns,
    those not in `columns` (None: all) are null. With `layout.row_ids` the rows' ids follow them. Rows that do not satisfy the
    predicate may be left out.
    """
    wanted = [each for each in layout.schema.fields if columns is None or each.name in columns]
    ids = () if layout.row_ids is None else layout.row_ids.names
    schema = to_spark(StructType(wanted))
    for name in ids:
        schema = schema.add(name, LongType())
    taken = {each.lower() for each in (*layout.schema.names, *ids)}
    file, row = located or (unused("file", taken), unused("row", taken))
    schema = schema.add(file, StringType()).add(row, LongType())
    told = {
        "location": layout.location,
        "schema": schema_to_json(layout.schema),
        "partition_columns": layout.partition_columns,
        "version": layout.version,
        "columns": [each.name for each in wanted],
        "row_ids": ids,
        "where": None if predicate is None or may_fail(predicate.root) else predicate.to_sql(),
    }
    spark.dataSource.register(PlacesSource)
    reader = spark.read.format(_NAME).schema(schema)
    storage = {_STORAGE_PREFIX + name: value for name, value in layout.storage_options.items()}
    frame = reader.options(scan=json.dumps(told), files=_as_text(files, lost), **storage).load()
    everything: dict[str, Any] = {each.name: each.dataType for each in to_spark(layout.schema).fields}
    names = {each.name for each in wanted}
    values = [F.col(quoted(name)) if name in names else F.lit(None).cast(kind).alias(name) for name, kind in everything.items()]
    return frame.select(*values, *(F.col(quoted(name)) for name in (*ids, *(located or ()))))


def _as_text(files: pa.Table, lost: Mapping[str, Rows]) -> str:
    """The files and the rows they lost, compressed."""
    paths = files["path"].to_pylist()
    payloads = [encode_payload(lost[path]) if path in lost else None for path in paths]
    table = files.select(_NEEDED).append_column("number", pa.array(range(len(paths)), pa.int64()))
    table = table.append_column("lost", pa.array(payloads, pa.binary()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return base64.b64encode(sink.getvalue()).decode("ascii")


class PlacesSource(DataSource):
    """Reads the files that its options name."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return _NAME

    def reader(self, schema: SparkStruct) -> PlacesReader:
        """A reader of these files."""
        return PlacesReader(self.options, schema)


class PlacesReader(DataSourceReader):
    """Is sent to the tasks, which only use the object store; each gets some of the files."""

    def __init__(self, options: Mapping[str, str], schema: SparkStruct) -> None:
        self._told: dict[str, Any] = json.loads(options["scan"])
        self._files: pa.Table | None = pa.ipc.open_stream(base64.b64decode(options["files"])).read_all()
        self._storage = {key.removeprefix(_STORAGE_PREFIX): value for key, value in options.items() if key.startswith(_STORAGE_PREFIX)}
        self._names = schema.names

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_files": None}

    def partitions(self) -> list[InputPartition]:
        """The files, in tasks of about equal size."""
        assert self._files is not None
        return [InputPartition(part) for part in balanced(self._files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        files = partition.value
        numbers = [str(each) for each in files["number"].to_pylist()]
        paths = files["path"].to_pylist()
        lost = {path: decode_payload(each) for path, each in zip(paths, files["lost"].to_pylist(), strict=True) if each is not None}
        told, schema = self._told, parse_schema(self._told["schema"])
        ids = RowIdColumns(*told["row_ids"]) if told["row_ids"] else None
        predicate = None if told["where"] is None else Predicate.parse(told["where"], schema)
        scan = TableScan(open_store(told["location"], self._storage), schema, told["partition_columns"], told["version"], ids)
        struct = with_row_ids(StructType([each for each in schema.fields if each.name in told["columns"]]), ids)
        for index, rows, positions in scan.positions(files, struct.names, predicate, chosen=True, deleted=lost, in_pieces=True):
            columns = [] if not struct.fields else adapt(rows, struct).columns
            table = pa.Table.from_arrays([*columns, pa.repeat(numbers[index], len(positions)), positions], names=self._names)
            yield from table.to_batches()
