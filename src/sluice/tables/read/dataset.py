"""A snapshot as a pyarrow dataset: other engines scan its Parquet files themselves, through the table's own object store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from ...storage.actions.uris import object_at
from ...storage.data.scan import TableScan
from ...storage.errors import ObjectNotFound
from ...storage.log.snapshot import Snapshot
from ...storage.schema.datatypes import PrimitiveType, StructType
from ...storage.schema.partitions import decode_column, partition_texts
from ...storage.schema.schema import to_arrow
from ...storage.stores.arrow_input import arrow_input
from ...storage.stores.objects import ObjectStore


def dataset_of(store: ObjectStore, snapshot: Snapshot, struct: StructType) -> ds.Dataset:
    """The dataset of a snapshot. Files with deletion vectors are read here: a dataset of files would show their deleted rows."""
    schema, partitions = to_arrow(struct), snapshot.partition_columns
    has_vector = pc.is_valid(snapshot.files["deletion_vector"])
    plain, changed = snapshot.files.filter(pc.invert(has_vector)), snapshot.files.filter(has_vector)
    parquet, files = ds.ParquetFileFormat(), pyarrow.fs.PyFileSystem(_StoreFiles(store))
    fragments = [
        parquet.make_fragment(path, files, partition_expression=expression)
        for path, expression in zip(plain["path"].to_pylist(), _expressions(plain, struct, partitions), strict=True)
    ]
    of_files = ds.FileSystemDataset(fragments, schema, parquet, files)
    if not changed.num_rows:
        return of_files
    rows = TableScan(store, struct, partitions, snapshot.version).read(changed, chosen=True)
    return ds.UnionDataset(schema, [of_files, ds.InMemoryDataset(rows)])


def _expressions(files: pa.Table, struct: StructType, partitions: Sequence[str]) -> list[ds.Expression]:
    """For each file the condition that its partition values satisfy."""
    texts = partition_texts(files["partition_values"], partitions)
    columns = []
    for name, each in zip(partitions, texts, strict=True):
        dtype = struct.named(name).type
        assert isinstance(dtype, PrimitiveType)  # Delta partitions by no other
        columns.append(decode_column(each, dtype))
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
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> Any:
        store, key = object_at(self._store, path)
        try:
            return pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File, size=store.head(key).size)
        except ObjectNotFound:
            return pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.NotFound)

    def _refuse(self, *_: object) -> Any:
        raise PermissionError("a snapshot's files are read only: write through sluice.Table")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
