"""Rows of given files with their places, read by Python tasks: where Spark's own scan cannot read them.

That is so for a store that the JVM does not reach (S3 without hadoop-aws), for files outside of the table's folder and for
folders that do not match their partition. Tasks read the columns that are needed, skip row groups by the predicate, and leave out
rows that do not satisfy it, before rows go to the JVM. They load this module, so it imports only what they need.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType
from pyspark.sql.types import StructType as SparkStruct

from ...storage.data.row_ids import RowIdColumns
from ...storage.data.scan import TableScan
from ...storage.data.vectors import Rows, decode_payload, encode_payload
from ...storage.expressions.nodes import Arithmetic, Call, Case, Cast, Compare, In, Literal, Node, children, walk
from ...storage.pruning.predicate import Predicate
from ...storage.schema.conform import adapt
from ...storage.schema.schema import StructType, parse_schema, schema_to_json
from ...storage.stores.location import open_store
from ..data_source.reader import balanced
from ..schemas import to_spark
from .native import Layout, column, rows_of_files, why_not_native

_NAME: Final = "sluice_places"
_STORAGE_PREFIX: Final = "s3."
_NEEDED: Final = ("path", "partition_values", "size", "base_row_id", "default_row_commit_version")


def rows_of(spark: SparkSession, layout: Layout, files: pa.Table, lost: Mapping[str, Rows]) -> DataFrame:
    """The rows of these files without those `lost`: by Spark's own scan if it can read them, otherwise by Python tasks."""
    reason = why_not_native(spark, layout.location, layout.storage_options, layout.schema)
    frame = rows_of_files(spark, layout, files, (lambda _: lost) if lost else None) if reason is None else reason
    return rows_by_python(spark, layout, files, lost) if isinstance(frame, str) else frame


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
    file, row = located or _unused(layout.schema)
    schema = schema.add(file, StringType()).add(row, LongType())
    told = {
        "location": layout.location,
        "schema": schema_to_json(layout.schema),
        "partition_columns": layout.partition_columns,
        "version": layout.version,
        "columns": [each.name for each in wanted],
        "row_ids": ids,
        "where": None if predicate is None or _may_fail(predicate) else predicate.to_sql(),
    }
    spark.dataSource.register(PlacesSource)
    reader = spark.read.format(_NAME).schema(schema)
    storage = {_STORAGE_PREFIX + name: value for name, value in layout.storage_options.items()}
    frame = reader.options(scan=json.dumps(told), files=_as_text(files, lost), **storage).load()
    everything: dict[str, Any] = {each.name: each.dataType for each in to_spark(layout.schema).fields}
    names = {each.name for each in wanted}
    values = [column(name) if name in names else F.lit(None).cast(kind).alias(name) for name, kind in everything.items()]
    return frame.select(*values, *map(column, ids), *([] if located is None else [column(file), column(row)]))


def _may_fail(predicate: Predicate) -> bool:
    """Whether it may raise for a row for which Spark would not ask it, such as a division by zero."""
    return any(isinstance(each, (Arithmetic, Call, Case, Cast)) or _converts(each) for each in walk(predicate.root))


def _converts(node: Node) -> bool:
    """Whether values of a column are converted for a comparison in a way that may fail."""
    if not isinstance(node, (Compare, In)):
        return False
    kinds = [each.type for each in children(node) if not isinstance(each, Literal)]
    return any(kind != node.at and not (pa.types.is_integer(kind) and pa.types.is_integer(node.at)) for kind in kinds)


def _unused(schema: StructType) -> tuple[str, str]:
    """Names of two columns that the table lacks."""
    file = "file"
    while any(name.lower().startswith(file) for name in schema.names):
        file += "_"
    return file, file + "row"


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
        told = json.loads(options["scan"])
        self._files: pa.Table | None = pa.ipc.open_stream(base64.b64decode(options["files"])).read_all()
        self._location = told["location"]
        self._storage = {key.removeprefix(_STORAGE_PREFIX): value for key, value in options.items() if key.startswith(_STORAGE_PREFIX)}
        self._schema = parse_schema(told["schema"])
        self._partition_columns = told["partition_columns"]
        self._version = told["version"]
        self._columns = told["columns"]
        self._ids = RowIdColumns(*told["row_ids"]) if told["row_ids"] else None
        self._names = schema.names
        self._predicate = None if told["where"] is None else Predicate.parse(told["where"], self._schema)

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
        store, ids = open_store(self._location, self._storage), self._ids
        scan = TableScan(store, self._schema, self._partition_columns, self._version, ids)
        wanted = StructType(each for each in self._schema.fields if each.name in self._columns)
        wanted = wanted if ids is None else ids.beside(wanted)
        for index, rows, positions in scan.places(files, wanted.names, self._predicate, chosen=True, deleted=lost):
            columns = [] if not wanted.fields else adapt(rows, wanted).columns
            table = pa.Table.from_arrays([*columns, pa.repeat(numbers[index], len(positions)), positions], names=self._names)
            yield from table.to_batches()
