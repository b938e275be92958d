"""Reading of checkpoints: classic, multi-part, and V2 (JSON or Parquet) with sidecars ("Checkpoints" in PROTOCOL.md).

Adds and removes go from Parquet columns to Arrow tables without a Python object for each. Columns that this version of
sluice does not know are ignored, as the protocol asks of readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .codec import action_of, decode_commit
from .errors import CorruptLogFile, MissingObject, ObjectNotFound
from .filetable import FILES_SCHEMA, TOMBSTONES_SCHEMA, LayeredTable, add_rows, nulls, remove_rows
from .objects import ObjectStore
from .paths import LogKind, sidecar_path
from .records import Action, AddFile, RemoveFile, Sidecar
from .replay import ReplayState
from .segment import Checkpoint
from .structjson import struct_to_json

__all__ = ["VECTOR_WIRE", "WIRE", "read_checkpoint"]

# The protocol's name of each column of our tables ; `extra_json` has none, and no place in a checkpoint.
VECTOR_WIRE: Final = {
    "storage_type": "storageType",
    "path_or_inline_dv": "pathOrInlineDv",
    "offset": "offset",
    "size_in_bytes": "sizeInBytes",
    "cardinality": "cardinality",
}
WIRE: Final = {
    "path": "path",
    "partition_values": "partitionValues",
    "size": "size",
    "modification_time": "modificationTime",
    "data_change": "dataChange",
    "stats": "stats",
    "tags": "tags",
    "deletion_vector": "deletionVector",
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "clustering_provider": "clusteringProvider",
    "deletion_timestamp": "deletionTimestamp",
    "extended_file_metadata": "extendedFileMetadata",
}
_SMALL: Final = ("txn", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar")
_STATS_STRUCT: Final = "stats_parsed"
_BATCH_ROWS: Final = 65_536
_WHOLE_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class _Content:
    """What the files of a checkpoint hold: rows for files, records for the rest."""

    files: list[pa.Table] = field(default_factory=list)
    tombstones: list[pa.Table] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)


def read_checkpoint(store: ObjectStore, checkpoint: Checkpoint, *, with_files: bool = True) -> ReplayState:
    """The state that a checkpoint holds; without its files when only the small actions are wanted.

    Raises CorruptLogFile, naming the file, for one that cannot be read, MissingObject for a sidecar that is not there, and
    ObjectNotFound when the checkpoint itself is gone since it was listed.
    """
    content = _Content()
    for part in checkpoint.parts:
        if part.path.kind is LogKind.V2_CHECKPOINT and part.key.endswith(".json"):
            _split(decode_commit(store.get(part.key), name=part.key), content)
        else:
            _read_parquet(store, part.key, part.size, content, with_files)
    sidecars = [each for each in content.actions if isinstance(each, Sidecar)]
    for sidecar in sidecars if with_files else ():
        key = sidecar_path(sidecar.path)
        try:
            _read_parquet(store, key, sidecar.size_in_bytes, content, with_files)
        except ObjectNotFound as cause:
            raise MissingObject(
                f"{key} is not there, but checkpoint {checkpoint.parts[0].key} refers to it; restore it from a copy",
                key=key,
                version=checkpoint.version,
            ) from cause
    state = ReplayState().after([content.actions])
    return replace(
        state,
        files=LayeredTable(pa.concat_tables([FILES_SCHEMA.empty_table(), *content.files]), add_rows),
        tombstones=LayeredTable(pa.concat_tables([TOMBSTONES_SCHEMA.empty_table(), *content.tombstones]), remove_rows),
    )


def _split(actions: Iterable[Action], content: _Content) -> None:
    adds: list[AddFile] = []
    removes: list[RemoveFile] = []
    for action in actions:
        match action:
            case AddFile():
                adds.append(action)
            case RemoveFile():
                removes.append(action)
            case _:
                content.actions.append(action)
    content.files.append(add_rows(adds))
    content.tombstones.append(remove_rows(removes))


def _read_parquet(store: ObjectStore, key: str, size: int, content: _Content, with_files: bool) -> None:
    """Read one file; a small one is fetched whole, in one request, and read without the help of other threads."""
    large = size > _WHOLE_BYTES
    source = store.open_input(key) if large else pa.BufferReader(store.get(key))
    try:
        with source, pq.ParquetFile(source, pre_buffer=large, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                _read_group(file, group, key, content, with_files, threads=large)
    except (pa.ArrowException, OSError) as cause:
        raise CorruptLogFile(
            f"checkpoint {key} cannot be read: {cause}; the file is truncated or damaged: restore it from a copy",
            file=key,
            line=None,
            reason=str(cause),
        ) from cause


def _read_group(file: pq.ParquetFile, group: int, key: str, content: _Content, with_files: bool, *, threads: bool) -> None:
    wanted = _wanted(file.metadata.row_group(group), with_files)
    # Some writers put a million rows into one group: batches keep what is decoded at once small.
    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=wanted, use_threads=threads) if wanted else ():
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            # Each row of a checkpoint has one of its columns set.
            rows = column.drop_null() if column.null_count else column
            if name == "add":
                content.files.append(pa.Table.from_batches([_files(rows)]))
            elif name == "remove":
                content.tombstones.append(pa.Table.from_batches([_to_schema(rows, TOMBSTONES_SCHEMA)]))
            else:
                content.actions += [_small_action(name, _plain(body, rows.type), key) for body in rows.to_pylist()]


def _wanted(group: pq.RowGroupMetaData, with_files: bool) -> list[str]:
    """The leaves to read from a row group: of what sluice knows, and of columns that hold anything, as its statistics tell."""
    leaves: dict[str, list[str]] = {}
    present: set[str] = set()
    nulls_of: dict[str, int | None] = {}
    for index in range(group.num_columns):
        leaf = group.column(index)
        name = leaf.path_in_schema.split(".", 1)[0]
        leaves.setdefault(name, []).append(leaf.path_in_schema)
        statistics = leaf.statistics
        count = statistics.null_count if statistics is not None and statistics.has_null_count else None
        nulls_of[leaf.path_in_schema] = count
        if count is None or count < leaf.num_values:
            present.add(name)
    wanted = [leaf for name in _SMALL if name in present for leaf in leaves[name]]
    for name, schema in (("add", FILES_SCHEMA), ("remove", TOMBSTONES_SCHEMA)) if with_files else ():
        if name in present:
            known = {WIRE[column] for column in schema.names if column in WIRE}
            if name == "add" and not _stats_complete(nulls_of):
                known.add(_STATS_STRUCT)
            wanted += [leaf for leaf in leaves[name] if leaf.split(".", 2)[1] in known]
    return wanted


def _stats_complete(nulls_of: Mapping[str, int | None]) -> bool:
    """Whether every add of a row group has its statistics as JSON (a path is what every add has)."""
    paths = nulls_of.get("add.path")
    return paths is not None and nulls_of.get("add.stats") == paths


def _files(rows: pa.StructArray) -> pa.RecordBatch:
    """The rows of `add`, with statistics that the writer kept only as columns (writeStatsAsJson=false) as JSON."""
    files = _to_schema(rows, FILES_SCHEMA)
    stats = files.column("stats")
    if stats.null_count and rows.type.get_field_index(_STATS_STRUCT) >= 0:
        whole = pc.coalesce(stats, struct_to_json(pc.struct_field(rows, _STATS_STRUCT)))
        return files.set_column(files.schema.get_field_index("stats"), FILES_SCHEMA.field("stats"), whole)
    return files


def _to_schema(rows: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_column(rows, WIRE.get(each.name), each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(rows: pa.StructArray, wire: str | None, kind: pa.DataType) -> pa.Array:
    if wire is None or rows.type.get_field_index(wire) < 0:
        return nulls(len(rows), kind)
    values = pc.struct_field(rows, wire)
    if values.null_count == len(values):
        return nulls(len(rows), kind)
    if pa.types.is_struct(kind):
        parts = [_column(values, VECTOR_WIRE[each.name], each.type) for each in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.is_null(values))
    return values if values.type == kind else values.cast(kind)


def _small_action(name: str, body: Mapping[str, Any], key: str) -> Action:
    try:
        return action_of({name: body})
    except ValueError as cause:
        raise CorruptLogFile(
            f"checkpoint {key} holds a {name} that is none: {cause}; restore it from a copy", file=key, line=None, reason=str(cause)
        ) from cause


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow as JSON would have it: maps are objects, and what is null is not there."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _plain(value[each.name], each.type) for each in kind if value[each.name] is not None}
    if pa.types.is_map(kind):
        return {name: _plain(inner, kind.item_type) for name, inner in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(inner, kind.value_type) for inner in value]
    return value
