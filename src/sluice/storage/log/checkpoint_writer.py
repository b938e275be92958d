"""Writes classic checkpoints ("V1 Spec" in PROTOCOL.md), which every Delta reader understands.

Any client may write a checkpoint at any time after its version is in the log: two concurrent writers write the same state
under the same name, and the last one stays. `_last_checkpoint` only moves up, and is only a hint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..actions.codec import encode
from ..actions.features import FEATURE_READER_VERSION, FEATURE_WRITER_VERSION
from ..actions.filetable import FILES_SCHEMA, TEXT_MAP, TOMBSTONES_SCHEMA, VECTOR, nulls
from ..actions.records import Action
from ..constants import DELETED_FILE_RETENTION_DEFAULT_MS, DELETED_FILE_RETENTION_KEY, LAST_CHECKPOINT
from ..errors import ObjectNotFound, VersionNotFound
from ..intervals import interval_ms
from ..jsontext import dumps, loads
from ..stores.objects import ObjectStore
from .checkpoint_part import VECTOR_WIRE, WIRE
from .paths import checkpoint_path, commit_path
from .segment import last_checkpoint_version
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
    cutoff = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - kept_ms
    key = checkpoint_path(snapshot.version)
    rows = 0
    with (
        store.upload(key) as stream,
        pq.ParquetWriter(stream, CHECKPOINT_SCHEMA, compression="snappy", use_dictionary=_REPEATING, write_page_checksum=True) as writer,
    ):
        for table in _row_groups(snapshot, cutoff):
            writer.write_table(table)
            rows += table.num_rows
    hint = {"version": snapshot.version, "size": rows, "sizeInBytes": store.head(key).size, "numOfAddFiles": snapshot.num_files}
    present = last_checkpoint_version(store)
    if present is None or present <= snapshot.version:
        store.put(LAST_CHECKPOINT, dumps(hint))


def _row_groups(snapshot: Snapshot, cutoff_ms: int) -> Iterator[pa.Table]:
    # The lists exist exactly if the versions need them, whatever the log's action has.
    protocol = snapshot.protocol
    readers = (protocol.reader_features or ()) if protocol.min_reader_version >= FEATURE_READER_VERSION else None
    writers = (protocol.writer_features or ()) if protocol.min_writer_version >= FEATURE_WRITER_VERSION else None
    protocol = replace(protocol, reader_features=readers, writer_features=writers)
    actions: tuple[Action, ...] = (protocol, snapshot.metadata, *snapshot.app_transactions.values(), *snapshot.domains.values())
    small: list[dict[str, dict[str, Any]]] = [loads(encode(each)) for each in actions]
    metadata = small[1]["metaData"]  # Arrow takes maps as lists of pairs
    metadata["configuration"] = list(metadata["configuration"].items())
    metadata["format"]["options"] = list(metadata["format"]["options"].items())
    yield pa.table(
        {name: pa.array([each.get(name) for each in small], CHECKPOINT_SCHEMA.field(name).type) for name in CHECKPOINT_SCHEMA.names}
    )
    tombstones = snapshot.tombstones
    unexpired = pc.greater(pc.fill_null(tombstones.column("deletion_timestamp"), 0), cutoff_ms)
    for name, table in (("add", snapshot.files), ("remove", tombstones.filter(unexpired))):
        for start in range(0, table.num_rows, _ROW_GROUP_ROWS):
            yield _file_actions(name, table.slice(start, _ROW_GROUP_ROWS))


def _file_actions(name: str, rows: pa.Table) -> pa.Table:
    """A table of the checkpoint in which only column `name` is set."""
    kind = CHECKPOINT_SCHEMA.field(name).type
    structs = []
    for batch in rows.to_batches():
        columns = [batch.column(each) for each in batch.schema.names if each in WIRE]
        for place, column in enumerate(columns):
            if pa.types.is_struct(column.type):  # a deletion vector gets the protocol's names
                parts = [column.field(index) for index in range(column.type.num_fields)]
                columns[place] = pa.StructArray.from_arrays(parts, fields=list(_VECTOR), mask=pc.is_null(column))
        structs.append(pa.StructArray.from_arrays(columns, fields=list(kind)))
    others = {each.name: nulls(rows.num_rows, each.type) for each in CHECKPOINT_SCHEMA if each.name != name}
    return pa.table({**others, name: pa.chunked_array(structs, kind)}).select(CHECKPOINT_SCHEMA.names)
