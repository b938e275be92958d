"""Change data files: a version's deleted, inserted and updated rows, beside its data files ("Change Data Files").

They are for tables with `delta.enableChangeDataFeed`. Readers of a version with such files read only these, so a transaction that writes
any puts all of its changes into them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddCDCFile, Metadata
from ...storage.actions.filetable import add_rows
from ...storage.constants import CHANGE_DATA_FOLDER
from ...storage.data.datafiles import FileFormat, write_files
from ...storage.data.scan import TableScan
from ...storage.data.vectors import positions_of
from ...storage.errors import InvalidRequest
from ...storage.schema.datatypes import as_nullable
from ...storage.schema.partitions import uri_to_path
from ...storage.schema.schema import PrimitiveType, StructField, StructType
from ...storage.stores.objects import ObjectStore
from ..client.property_rules import file_size_of
from .draft import Draft

CHANGE_TYPE: Final = "_change_type"
INSERT: Final = "insert"
DELETE: Final = "delete"
UPDATE_PREIMAGE: Final = "update_preimage"
UPDATE_POSTIMAGE: Final = "update_postimage"

# How much collects in memory before it becomes files.
_PENDING_BYTES: Final = 64 * 1024 * 1024


class ChangeDataWriter:
    """Writes the changes of one transaction, rows in the table's schema, in bounded memory; not thread-safe.

    The files are below `_change_data/`, partitioned like data files, with the transaction's id in their names.
    """

    def __init__(self, store: ObjectStore, metadata: Metadata, transaction_id: str, label: str = "") -> None:
        """`label` distinguishes the writers of one transaction."""
        schema = metadata.schema
        if schema.get(CHANGE_TYPE) is not None:
            raise InvalidRequest(
                f"the table has a column {CHANGE_TYPE!r}, a name reserved for change data files; rename it, or switch "
                "delta.enableChangeDataFeed off",
                column=CHANGE_TYPE,
            )
        self._store = store
        # Nullable, for rows from before a column became NOT NULL.
        nullable = StructType([*map(as_nullable, schema.fields), StructField(CHANGE_TYPE, PrimitiveType("string"))])
        file_bytes = file_size_of(metadata.configuration)
        self._layout = FileFormat(
            nullable, metadata.partition_columns, indexed_columns=0, target_file_bytes=file_bytes, root=CHANGE_DATA_FOLDER
        )
        self._transaction_id = transaction_id
        self._label = f"{label}-cdc" if label else "cdc"
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._parts = 0
        self._files: list[AddCDCFile] = []

    def record(self, before: pa.Table | None, after: pa.Table | None) -> None:
        """Record that the rows `before` became the rows `after`, one by one; those without the others were deleted, or inserted."""
        changes = DELETE, INSERT
        if before is not None and after is not None:
            if before.num_rows != after.num_rows:
                raise InvalidRequest(
                    f"{before.num_rows} rows cannot have become {after.num_rows}: give each updated row once in both tables"
                )
            changes = UPDATE_PREIMAGE, UPDATE_POSTIMAGE
        for rows, change in zip((before, after), changes, strict=True):
            if rows is not None and rows.num_rows:
                self._pending.append(rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(change, pa.string()), rows.num_rows)))
                self._pending_bytes += rows.nbytes
                if self._pending_bytes >= _PENDING_BYTES:
                    self._flush()

    def finish(self) -> tuple[AddCDCFile, ...]:
        """Write what is pending; returns the actions of all files, none if there were no rows."""
        self._flush()
        return tuple(self._files)

    def discard(self) -> None:
        """Remove the files written so far: the transaction will not be committed."""
        self._pending, self._pending_bytes = [], 0
        files, self._files = self._files, []
        for each in files:
            self._store.delete(uri_to_path(each.path))

    def _flush(self) -> None:
        if not self._pending:
            return
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        written = write_files(self._store, pending, self._layout, transaction_id=self._transaction_id, label=f"{self._label}{self._parts}")
        self._parts += 1
        self._files += [AddCDCFile(each.path, each.partition_values, each.size) for each in written]


def capture_changes(draft: Draft) -> tuple[AddCDCFile, ...]:
    """Write what the transaction did to the table's rows in total; nothing if whole files show it.

    Intermediate states of a row are not recorded. A changed row is an update if every changed row still has a successor;
    otherwise (a later operation deleted one, or one replaced several) it is a deletion and an insertion.
    """
    if draft.recorded is not None:
        return draft.recorded
    if not draft.changes_rows:
        return ()
    writer = ChangeDataWriter(draft.store, draft.metadata, draft.transaction_id)
    before: list[pa.Table] = []
    after: list[pa.Table] = []
    try:
        # the base's lost rows were deleted, except those that were changed
        scan = TableScan(draft.store, draft.schema, draft.partition_columns, draft.base.version)
        for add, gone, replaced in draft.lost():
            for _, rows, positions in scan.positions(add_rows([add])):
                became = pc.is_in(positions, value_set=positions_of(replaced))
                is_gone = pa.repeat(pa.scalar(True), len(positions)) if gone is None else pc.is_in(positions, value_set=positions_of(gone))
                writer.record(rows.filter(pc.and_not(is_gone, became)), None)
                before.append(rows.filter(became))
        for found in draft.find(None, draft.own_files):
            if draft.is_new(found.file.path):
                writer.record(None, found.rows)
            else:
                after.append(found.rows)
        if sum(map(len, before)) != sum(map(len, after)):
            for rows in before:
                writer.record(rows, None)
            for rows in after:
                writer.record(None, rows)
        elif after:
            writer.record(pa.concat_tables(before), pa.concat_tables(after))
        return writer.finish()
    except BaseException:
        writer.discard()
        raise
