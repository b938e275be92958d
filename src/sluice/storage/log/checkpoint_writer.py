"""Writes checkpoints: classic ones ("V1 Spec" in PROTOCOL.md), which every Delta reader understands, or V2 ones, which share files
(`sidecars`).

Any client may write a checkpoint at any time after its version is in the log: two concurrent writers write the same state
under the same name, and the last one stays. `_last_checkpoint` only moves up, and is only a hint.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..actions.codec import encode, encode_all
from ..actions.features import FEATURE_READER_VERSION, FEATURE_WRITER_VERSION, writes_v2
from ..actions.filetable import FILES_SCHEMA, TEXT_MAP, TOMBSTONES_SCHEMA, VECTOR, nulls
from ..actions.records import Action, CheckpointMetadata, Sidecar
from ..caches import at_once
from ..constants import DELETED_FILE_RETENTION_DEFAULT_MS, DELETED_FILE_RETENTION_KEY, LAST_CHECKPOINT, SIDECAR_FOLDER
from ..errors import ObjectNotFound, VersionNotFound
from ..jsontext import dumps, loads
from ..stores.objects import ObjectStore
from ..times import interval_ms
from .checkpoint_part import VECTOR_WIRE, WIRE, FileColumn
from .paths import checkpoint_path, commit_path, v2_checkpoint_path
from .segment import last_checkpoint_version
from .sidecars import INDEX, ROWS_MAX, SINCE_CLASSIC, Indexed, indexed, plan_sidecars, write_index
from .snapshot import Snapshot

_INT, _LONG, _TEXT, _TEXTS, _FLAG = pa.int32(), pa.int64(), pa.string(), pa.list_(pa.string()), pa.bool_()
_VECTOR: Final = pa.struct([(VECTOR_WIRE[each.name], each.type) for each in VECTOR])


def _file_action(schema: pa.Schema) -> pa.StructType:
    """The struct of `add` or `remove`: the columns of the table of files, under the protocol's names."""
    return pa.struct([(WIRE[each.name], _VECTOR if pa.types.is_struct(each.type) else each.type) for each in schema if each.name in WIRE])


CHECKPOINT_SCHEMA: Final = pa.schema(
    {
        "txn": pa.struct({"appId": _TEXT, "version": _LONG, "lastUpdated": _LONG}),
        "add": _file_action(FILES_SCHEMA),
        "remove": _file_action(TOMBSTONES_SCHEMA),
        "metaData": pa.struct(
            {
                "id": _TEXT,
                "name": _TEXT,
                "description": _TEXT,
                "format": pa.struct({"provider": _TEXT, "options": TEXT_MAP}),
                "schemaString": _TEXT,
                "partitionColumns": _TEXTS,
                "createdTime": _LONG,
                "configuration": TEXT_MAP,
            }
        ),
        "protocol": pa.struct({"minReaderVersion": _INT, "minWriterVersion": _INT, "readerFeatures": _TEXTS, "writerFeatures": _TEXTS}),
        "domainMetadata": pa.struct({"domain": _TEXT, "configuration": _TEXT, "removed": _FLAG}),
    }
)

_SIDECAR_SCHEMA: Final = pa.schema([CHECKPOINT_SCHEMA.field(name) for name in ("add", "remove")])
_V2_SCHEMA: Final = pa.schema(
    [
        *CHECKPOINT_SCHEMA,
        pa.field("checkpointMetadata", pa.struct({"version": _LONG, "tags": TEXT_MAP})),
        pa.field("sidecar", pa.struct({"path": _TEXT, "sizeInBytes": _LONG, "modificationTime": _LONG, "tags": TEXT_MAP})),
    ]
)
_THREADS: Final = 4, "sluice-checkpoint"

# Rows of one row group: a writer holds them in memory, and a reader decodes them at once.
_ROW_GROUP_ROWS: Final = 65536
# The columns whose values repeat; a dictionary of paths or statistics would only cost time.
_REPEATING: Final[Any] = [
    "add.partitionValues.key_value.key",
    "add.partitionValues.key_value.value",
    "remove.partitionValues.key_value.key",
]


def write_checkpoint(store: ObjectStore, snapshot: Snapshot, *, now_ms: int | None = None) -> None:
    """Write the checkpoint of a snapshot whose version is in the log, and then `_last_checkpoint`.

    Tombstones older than `delta.deletedFileRetentionDuration` before `now_ms` (default: now) are omitted, since no reader
    needs them. Fields that the protocol does not define are not kept. Raises VersionNotFound if the version is not in the
    log (yet), InvalidRequest if the retention is not a duration.
    """
    try:
        store.head(commit_path(snapshot.version))
    except ObjectNotFound as cause:
        raise VersionNotFound(
            f"version {snapshot.version} of {store.location} cannot have a checkpoint: {commit_path(snapshot.version)} is not there; "
            f"write checkpoints of published versions only",
            location=store.location,
            version=snapshot.version,
        ) from cause
    retention = snapshot.configuration.get(DELETED_FILE_RETENTION_KEY)
    kept_ms = DELETED_FILE_RETENTION_DEFAULT_MS if retention is None else interval_ms(retention, name=DELETED_FILE_RETENTION_KEY)
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    write = _write_v2 if writes_v2(snapshot.protocol, snapshot.metadata) else _write_classic
    hint = write(store, snapshot, now_ms - kept_ms)
    present = last_checkpoint_version(store)
    if present is None or present <= snapshot.version:
        store.put(LAST_CHECKPOINT, dumps(hint))


def _write_classic(store: ObjectStore, snapshot: Snapshot, cutoff_ms: int) -> dict[str, Any]:
    size, rows = _write_parquet(store, checkpoint_path(snapshot.version), _row_groups(snapshot, cutoff_ms), CHECKPOINT_SCHEMA)
    return {"version": snapshot.version, "size": rows, "sizeInBytes": size, "numOfAddFiles": snapshot.num_files}


def _write_v2(store: ObjectStore, snapshot: Snapshot, cutoff_ms: int) -> dict[str, Any]:
    """Write the sidecars that differ from those of the checkpoint before, and then the file that names all of them."""
    plan = plan_sidecars(store, snapshot, cutoff_ms)
    tables: tuple[tuple[FileColumn, pa.Table], ...] = (("add", plan.adds), ("remove", _unexpired(plan.removes, cutoff_ms)))
    pieces: list[tuple[FileColumn, pa.Table]] = [(kind, t.slice(at, ROWS_MAX)) for kind, t in tables for at in range(0, len(t), ROWS_MAX)]
    held = [*plan.kept, *at_once(partial(_write_sidecar, store), pieces, *_THREADS)]
    sidecars = [each.sidecar for each in held]
    adds, rows = sum(each.rows for each in held if each.kind == "add"), sum(each.rows for each in held)
    size = sum(each.size_in_bytes for each in sidecars)
    tags = {
        "sidecarNumActions": str(rows),
        "sidecarSizeInBytes": str(size),
        "numOfAddFiles": str(adds),
        SINCE_CLASSIC: str(plan.since_classic),
        INDEX: write_index(store, held),
    }
    actions = (CheckpointMetadata(snapshot.version, tags), *_small_actions(snapshot), *sidecars)
    if plan.since_classic:
        key = v2_checkpoint_path(snapshot.version, str(uuid.uuid4()))
        store.put(key, encode_all(actions))
        own = store.head(key).size
    else:
        key = checkpoint_path(snapshot.version)
        own, _ = _write_parquet(store, key, [_small_rows(actions, _V2_SCHEMA)], _V2_SCHEMA)
    return {"version": snapshot.version, "size": len(actions) + rows, "sizeInBytes": own + size, "numOfAddFiles": adds}


def _write_sidecar(store: ObjectStore, piece: tuple[FileColumn, pa.Table]) -> Indexed:
    kind, rows = piece
    name = f"{uuid.uuid4()}.parquet"
    size, _ = _write_parquet(store, SIDECAR_FOLDER + name, [_file_actions(kind, rows, _SIDECAR_SCHEMA)], _SIDECAR_SCHEMA)
    return indexed(Sidecar(name, size, time.time_ns() // 1_000_000), kind, rows)


def _write_parquet(store: ObjectStore, key: str, tables: Iterable[pa.Table], schema: pa.Schema) -> tuple[int, int]:
    """Write a row group for each table; returns the size of the file, and its rows."""
    rows = 0
    with (
        store.upload(key) as stream,
        pq.ParquetWriter(stream, schema, compression="snappy", use_dictionary=_REPEATING, write_page_checksum=True) as writer,
    ):
        for table in tables:
            writer.write_table(table)
            rows += table.num_rows
    return store.head(key).size, rows


def _row_groups(snapshot: Snapshot, cutoff_ms: int) -> Iterator[pa.Table]:
    yield _small_rows(_small_actions(snapshot), CHECKPOINT_SCHEMA)
    for name, table in (("add", snapshot.files), ("remove", _unexpired(snapshot.tombstones, cutoff_ms))):
        for start in range(0, table.num_rows, _ROW_GROUP_ROWS):
            yield _file_actions(name, table.slice(start, _ROW_GROUP_ROWS), CHECKPOINT_SCHEMA)


def _unexpired(tombstones: pa.Table, cutoff_ms: int) -> pa.Table:
    return tombstones.filter(pc.greater(pc.fill_null(tombstones.column("deletion_timestamp"), 0), cutoff_ms))


def _small_actions(snapshot: Snapshot) -> tuple[Action, ...]:
    # The lists exist exactly if the versions need them, whatever the log's action has.
    protocol = snapshot.protocol
    readers = (protocol.reader_features or ()) if protocol.min_reader_version >= FEATURE_READER_VERSION else None
    writers = (protocol.writer_features or ()) if protocol.min_writer_version >= FEATURE_WRITER_VERSION else None
    protocol = replace(protocol, reader_features=readers, writer_features=writers)
    return protocol, snapshot.metadata, *snapshot.app_transactions.values(), *snapshot.domains.values()


def _small_rows(actions: Iterable[Action], schema: pa.Schema) -> pa.Table:
    """One row per action that is not a file's."""
    rows: list[dict[str, dict[str, Any]]] = [loads(encode(each)) for each in actions]
    for body in (body for row in rows for body in row.values()):  # Arrow takes maps as lists of pairs
        for holder, name in ((body, "configuration"), (body, "tags"), (body.get("format"), "options")):
            if holder is not None and isinstance(holder.get(name), dict):
                holder[name] = list(holder[name].items())
    return pa.table({each.name: pa.array([row.get(each.name) for row in rows], each.type) for each in schema}, schema)


def _file_actions(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with this schema in which only column `name` is set."""
    kind = schema.field(name).type
    structs = []
    for batch in rows.to_batches():
        columns = [batch.column(each) for each in batch.schema.names if each in WIRE]
        for place, column in enumerate(columns):
            if pa.types.is_struct(column.type):  # a deletion vector gets the protocol's names
                parts = [column.field(index) for index in range(column.type.num_fields)]
                columns[place] = pa.StructArray.from_arrays(parts, fields=list(_VECTOR), mask=pc.is_null(column))
        structs.append(pa.StructArray.from_arrays(columns, fields=list(kind)))
    others = {each.name: nulls(rows.num_rows, each.type) for each in schema if each.name != name}
    return pa.table({**others, name: pa.chunked_array(structs, kind)}).select(schema.names)
