"""Reads checkpoints: classic, multi-part, and V2 (JSON or Parquet) with sidecars ("Checkpoints" in PROTOCOL.md).

A checkpoint has a table's state (protocol, metadata, application transactions, domains), which is small, and its list of
files, which may be large. `read_checkpoint` reads the state. The lists of files and tombstones are read on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ..actions.codec import decode_commit
from ..actions.filetable import LayeredTable, add_rows, remove_rows
from ..actions.records import Action, AddFile, RemoveFile, Sidecar
from ..caches import ForkSafeLock
from ..errors import MissingObject, ObjectNotFound
from ..stores.objects import ObjectStore
from ..threads import at_once
from .checkpoint_part import CheckpointPart, FileColumn
from .paths import LogKind, sidecar_path
from .replay import ReplayState
from .segment import Checkpoint, LogFile

# A checkpoint up to this total size is fetched with one request per file, whatever part of it is needed.
_WHOLE_BYTES: Final = 4 * 1024 * 1024
_THREADS: Final = 4, "sluice-checkpoint-part"


def read_checkpoint(store: ObjectStore, checkpoint: Checkpoint) -> ReplayState:
    """The state in a checkpoint; its files and tombstones are read later, each on first use.

    Raises CorruptLogFile, naming the file, if it cannot be read, and ObjectNotFound if the checkpoint was removed since it
    was listed. Later reads raise the same, and MissingObject for a missing sidecar.
    """
    whole = sum(part.size for part in checkpoint.parts) <= _WHOLE_BYTES
    in_json = [part.key for part in checkpoint.parts if part.path.kind is LogKind.V2_CHECKPOINT and part.key.endswith(".json")]
    actions: list[Action] = [action for key in in_json for action in decode_commit(store.get(key), name=key)]

    def opened(file: LogFile) -> tuple[CheckpointPart, list[Action]]:
        part = CheckpointPart(store, file.key, whole=whole, size=file.size)
        return part, part.actions()

    read = at_once(opened, [part for part in checkpoint.parts if part.key not in in_json], *_THREADS)
    actions += [action for _, found in read for action in found]
    parts = [part for part, _ in read]
    sidecars = [each for each in actions if isinstance(each, Sidecar)]
    adds = add_rows([each for each in actions if isinstance(each, AddFile)])
    removes = remove_rows([each for each in actions if isinstance(each, RemoveFile)])
    return replace(
        ReplayState().after([[each for each in actions if not isinstance(each, (AddFile, RemoveFile))]]),
        files=LayeredTable(_FileList(store, checkpoint, parts, sidecars, "add", adds), add_rows),
        tombstones=LayeredTable(_FileList(store, checkpoint, parts, sidecars, "remove", removes), remove_rows),
        lists_at=checkpoint.version,
    )


class _FileList:
    """The adds or removes of a checkpoint's parts and sidecars, read once, on first use.

    `known` are those read with the state: the main file of a V2 checkpoint in JSON may have some.
    """

    def __init__(
        self,
        store: ObjectStore,
        checkpoint: Checkpoint,
        parts: Sequence[CheckpointPart],
        sidecars: Sequence[Sidecar],
        column: FileColumn,
        known: pa.Table,
    ) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._parts = tuple(parts)
        self._sidecars = tuple(sidecars)
        self._column: FileColumn = column
        self._known = known
        self._table: pa.Table | None = None
        self._lock = ForkSafeLock()

    @property
    def table(self) -> pa.Table:
        """The rows. Raises the same as `read_checkpoint`."""
        with self._lock:
            if self._table is None:
                found = at_once(self._of_part, self._parts, *_THREADS) + at_once(self._of_sidecar, self._sidecars, *_THREADS)
                batches = [*self._known.to_batches(), *(batch for batches in found for batch in batches)]
                self._table = pa.Table.from_batches(batches, self._known.schema)
                self._parts = ()  # they are not read again
            return self._table

    @property
    def held(self) -> Mapping[int, int]:
        """The bytes of the rows once they are read, by the identity of their table."""
        table = self._table
        return {} if table is None else {id(table): table.nbytes}

    def _of_part(self, part: CheckpointPart) -> list[pa.RecordBatch]:
        return part.files(self._column)

    def _of_sidecar(self, sidecar: Sidecar) -> list[pa.RecordBatch]:
        key = sidecar_path(sidecar.path)
        try:
            return CheckpointPart(self._store, key, whole=sidecar.size_in_bytes <= _WHOLE_BYTES).files(self._column)
        except ObjectNotFound as cause:
            raise MissingObject(
                f"{key} is not there, but checkpoint {self._checkpoint.parts[0].key} refers to it; restore it from a copy",
                key=key,
                version=self._checkpoint.version,
            ) from cause
