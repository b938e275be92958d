"""A readable version of a table: its rows, also as a pyarrow dataset, and its description (id, name, size, properties, protocol)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from ...coordinator.api import DEFAULT_TIMEOUT_S, Pin, Timeout, bounding, pin_version
from ...storage.actions.features import RowIdColumns, features_of_types, reader_features, writer_features
from ...storage.actions.filetable import picked
from ...storage.actions.records import Metadata, record_count
from ...storage.actions.uris import object_at
from ...storage.arguments import checked
from ...storage.constants import NAME_KEY
from ...storage.data.scan import TableScan
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, ObjectNotFound
from ...storage.log.snapshot import Snapshot
from ...storage.log.timetravel import version_at
from ...storage.notebook import html_of_fields
from ...storage.pruning.predicate import Predicate
from ...storage.schema.mapping import is_found_by_id, physical
from ...storage.schema.partitions import decode_column, partition_texts
from ...storage.schema.schema import PrimitiveType, StructType, to_arrow
from ...storage.stores.objects import ObjectStore
from ...storage.stores.streams import arrow_input
from ...storage.times import Moment, milliseconds_of, time_of
from ..client.open_table import ReadTable
from ..client.property_rules import clustering_names
from ..client.published_table import PublishedTable

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # its stubs are not installed
    import polars as pl


@checked
class TableSnapshot:
    """One fixed version of a table: later commits do not show here."""

    def __init__(self, store: ObjectStore, snapshot: Snapshot, *, pin: Callable[[int], Pin] | None = None) -> None:
        self._store = store
        self._pin = pin
        self.raw = snapshot
        self.struct: StructType = snapshot.metadata.schema

    @property
    def version(self) -> int:
        """The Delta version."""
        return self.raw.version

    @property
    def timestamp(self) -> int:
        """The version's commit time in milliseconds since the epoch."""
        return self.raw.timestamp_ms

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return to_arrow(self.struct)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns the table is partitioned by, in order."""
        return self.raw.partition_columns

    @property
    def num_files(self) -> int:
        """How many data files the version has."""
        return self.raw.num_files

    def pin(self, *, timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> Pin:
        """Keep this version's files from garbage collection until the returned pin is released; use it in a `with` block for long reads.

        Raises VersionNotFound if they may be gone already, InvalidRequest for a snapshot that was read without a coordinator.
        """
        if self._pin is None:
            raise InvalidRequest(
                "a snapshot that was read without a coordinator cannot be pinned: open the table without consistency='published'"
            )
        with bounding(timeout_s):
            return self._pin(self.version)

    def predicate(self, where: str | Predicate | None) -> Predicate | None:
        """A condition on this table's columns. Raises PredicateError."""
        return where if where is None or isinstance(where, Predicate) else Predicate.parse(where, self.struct)

    def files(self, where: str | Predicate | None = None) -> pa.Table:
        """The data files that may have rows satisfying `where`, as an Arrow table (path, partition_values, size, ...)."""
        predicate = self.predicate(where)
        files = self.raw.files
        if predicate is None:
            return files
        return picked(files, predicate.may_match(files, schema=self.struct, partition_columns=self.raw.partition_columns))

    def _scan(self, columns: Sequence[str] | None, *, row_ids: bool) -> tuple[TableScan, Sequence[str] | None, RowIdColumns | None]:
        """The scan, the columns that it reads, and those of the row ids among them."""
        ids = RowIdColumns.to_show(self.raw.metadata, self.raw.protocol, self.struct) if row_ids else None
        scan = TableScan(self._store, self.struct, self.raw.partition_columns, self.version, ids)
        return scan, columns if columns is None or ids is None else [*columns, *ids.names], ids

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | Predicate | None = None, *, row_ids: bool = False) -> pa.Table:
        """The rows that satisfy `where`, all columns or the given ones. Raises PredicateError, MissingObject.

        With `row_ids` two columns follow, `_row_id` and `_row_commit_version` (int64): the id of a row stays the same, whatever changes it
        or moves it to another file; the version inserted or last updated it. Raises InvalidRequest without `delta.enableRowTracking`.
        """
        predicate = self.predicate(where)
        scan, read_columns, ids = self._scan(columns, row_ids=row_ids)
        rows = scan.read(self.files(predicate), read_columns, predicate, chosen=True)
        return rows if ids is None else rows.rename_columns(ids.shown(rows.column_names))

    def to_batches(
        self, columns: Sequence[str] | None = None, where: str | Predicate | None = None, *, row_ids: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Like `to_arrow`, batch by batch, in bounded memory."""
        predicate = self.predicate(where)
        scan, read_columns, ids = self._scan(columns, row_ids=row_ids)
        batches = scan.batches(self.files(predicate), read_columns, predicate, chosen=True)
        return batches if ids is None else (batch.rename_columns(ids.shown(batch.schema.names)) for batch in batches)

    @property
    def time(self) -> datetime:
        """The version's commit time, in UTC."""
        return time_of(self.timestamp)

    @property
    def num_rows(self) -> int:
        """The number of rows. Files whose statistics do not say are counted by reading their deletion vectors and footers."""
        files = self.raw.files
        vectors = pc.fill_null(pc.struct_field(files["deletion_vector"], "cardinality"), 0)
        counts = [record_count(stats) for stats in files["stats"].to_pylist()]
        unknown = files.filter(pa.array([count is None for count in counts], pa.bool_()))
        live: int = sum(count - gone for count, gone in zip(counts, vectors.to_pylist(), strict=True) if count is not None)
        scan, _, _ = self._scan([], row_ids=False)
        live += scan.read(unknown, [], chosen=True).num_rows
        return live

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows by the Arrow PyCapsule interface, in bounded memory: Polars, DuckDB, pandas and Arrow read a snapshot as it is."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches()).__arrow_c_stream__(requested_schema)

    def to_pandas(self, columns: Sequence[str] | None = None, where: str | Predicate | None = None) -> pd.DataFrame:
        """The rows that `to_arrow` returns, as a pandas DataFrame. Raises InvalidRequest if pandas is not installed."""
        if find_spec("pandas") is None:
            raise InvalidRequest("to_pandas() needs pandas, which is not installed: pip install pandas")
        return self.to_arrow(columns, where).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, where: str | Predicate | None = None) -> pl.DataFrame:
        """The rows that `to_arrow` returns, as a Polars DataFrame. Raises InvalidRequest if Polars is not installed."""
        if find_spec("polars") is None:
            raise InvalidRequest("to_polars() needs Polars, which is not installed: pip install polars")
        return cast("pl.DataFrame", import_module("polars").from_arrow(self.to_arrow(columns, where)))

    def to_dataset(self) -> ds.Dataset:
        """The rows as a pyarrow dataset, whose readers (DuckDB, Polars' `scan_pyarrow_dataset`) choose columns, rows and partitions.

        Parquet files are read when the dataset is; the rows of files with deletion vectors, of files whose columns have other names than
        the table's (column mapping), and of tables with variants are read into memory now.
        """
        schema, partitions = self.schema, self.raw.partition_columns
        is_named = not is_found_by_id(self.struct) and to_arrow(physical(self.struct)) == schema
        # check: datasets-without-shredded-variants
        is_named = is_named and "variantType" not in features_of_types(self.struct)  # pyarrow would leave out their parts
        has_vector = pc.or_(pc.is_valid(self.raw.files["deletion_vector"]), not is_named)
        plain, changed = self.raw.files.filter(pc.invert(has_vector)), self.raw.files.filter(has_vector)
        parquet, files = ds.ParquetFileFormat(), pyarrow.fs.PyFileSystem(_StoreFiles(self._store))
        fragments = [
            parquet.make_fragment(path, files, partition_expression=expression)
            for path, expression in zip(plain["path"].to_pylist(), _expressions(plain, self.struct, self.raw.metadata), strict=True)
        ]
        of_files = ds.FileSystemDataset(fragments, schema, parquet, files)
        if not changed.num_rows:
            return of_files
        rows = TableScan(self._store, self.struct, partitions, self.raw.version).read(changed, chosen=True)
        return ds.UnionDataset(schema, [of_files, ds.InMemoryDataset(rows)])

    def __repr__(self) -> str:
        return f"TableSnapshot({self.raw!r})"

    def _repr_html_(self) -> str:
        about = {
            "time": self.time,
            "files": self.num_files,
            "bytes": pc.sum(self.raw.files["size"]).as_py() or 0,
            "partitioned by": self.partition_columns,
            "columns": {column.name: column.type for column in self.schema},
        }
        return html_of_fields(f"Version {self.version} of {self._store.location}", about)


def _expressions(files: pa.Table, struct: StructType, metadata: Metadata) -> list[ds.Expression]:
    """For each file the condition that its partition values satisfy."""
    partitions = metadata.partition_columns
    texts = partition_texts(files["partition_values"], metadata.physical_partitions)
    types = [cast(PrimitiveType, struct.named(name).type) for name in partitions]  # Delta partitions by no other
    columns = [decode_column(each, dtype) for each, dtype in zip(texts, types, strict=True)]
    expressions = []
    for index in range(files.num_rows):
        expression = pc.scalar(True)
        for name, values in zip(partitions, columns, strict=True):
            value = values[index]
            expression &= pc.field(name) == value if value.is_valid else pc.field(name).is_null()
        expressions.append(expression)
    return expressions


class _StoreFiles(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The files of a snapshot by the paths of the log, to be read only."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get_type_name(self) -> str:
        return "sluice"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        store, key = object_at(self._store, path)
        try:
            return arrow_input(store.open_input(key))
        except ObjectNotFound as gone:
            raise FileNotFoundError(path) from gone

    open_input_stream = open_input_file

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        infos = []
        for path in paths:
            store, key = object_at(self._store, path)
            try:
                infos.append(pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File, size=store.head(key).size))
            except ObjectNotFound:
                infos.append(pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.NotFound))
        return infos

    def _refuse(self, *_: object) -> Any:
        raise PermissionError("a snapshot's files are read only: write through sluice.Table")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse


def snapshot_of(table: ReadTable, version: int | None, consistency: str | None = None, *, timeout_s: Timeout) -> TableSnapshot:
    """A table's snapshot at a version; None for the latest one of a level. One that the coordinator knows can be pinned."""
    shown = table.read(version, consistency, timeout_s=timeout_s)
    pin = None if isinstance(table, PublishedTable) else partial(pin_version, (table.successor or table).context)
    return TableSnapshot(table.store, shown, pin=pin)


@dataclass(frozen=True, slots=True)
class TableDetail:
    """A version of a table: times in ms since the epoch, `size_bytes` of its data files as they are stored.

    `name` is the one in the coordinator's catalog, or what another engine called the table. `created_ms` is None if the log does not say.
    """

    version: int
    id: str
    name: str | None
    description: str | None
    location: str
    created_ms: int | None
    modified_ms: int
    partition_columns: tuple[str, ...]
    clustering_columns: tuple[str, ...]
    num_files: int
    size_bytes: int
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    features: tuple[str, ...]


def detail_of(snapshot: TableSnapshot, location: str) -> TableDetail:
    """The description of this version."""
    raw = snapshot.raw
    metadata, protocol = raw.metadata, raw.protocol
    return TableDetail(
        version=snapshot.version,
        id=metadata.id,
        name=metadata.configuration.get(NAME_KEY) or metadata.name,
        description=metadata.description,
        location=location,
        created_ms=metadata.created_time,
        modified_ms=snapshot.timestamp,
        partition_columns=tuple(metadata.partition_columns),
        clustering_columns=clustering_names(raw),
        num_files=snapshot.num_files,
        size_bytes=pc.sum(raw.files["size"]).as_py() or 0,
        properties=dict(metadata.configuration),
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        features=tuple(sorted(reader_features(protocol) | writer_features(protocol))),
    )


def asked_version(store: ObjectStore, version: int | None, timestamp: Moment | None) -> int | None:
    """The version of that number, or the one that was current at `timestamp`; None if neither is given.

    Raises InvalidRequest if both are given, or for what is no time; VersionNotFound for a time outside the log.
    """
    if version is not None and timestamp is not None:
        raise InvalidRequest(f"version={version} and timestamp={timestamp} were given; give one of them")
    return version if timestamp is None else version_at(store, milliseconds_of(timestamp))
