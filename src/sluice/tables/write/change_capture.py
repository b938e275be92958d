"""The change data of a draft: what a table with `delta.enableChangeDataFeed` records of a transaction that changed rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddCDCFile
from ...storage.actions.filetable import add_rows
from ...storage.data.scan import TableScan
from ...storage.data.vectors import positions_of
from ..client.property_rules import file_size_of
from .change_data_files import ChangeDataWriter
from .draft import Draft

__all__ = ["capture_changes"]


def capture_changes(draft: Draft) -> tuple[AddCDCFile, ...]:
    """Write what the transaction did to the table's rows in total; nothing if whole files show it.

    Intermediate states of a row are not recorded. A changed row is an update if every changed row still has a successor;
    otherwise (a later operation deleted one, or one replaced several) it is a deletion and an insertion.
    """
    if draft.recorded is not None:
        return draft.recorded
    if not draft.changes_rows:
        return ()
    writer = ChangeDataWriter(
        draft.store,
        schema=draft.schema,
        partition_columns=draft.partition_columns,
        transaction_id=draft.transaction_id,
        target_file_bytes=file_size_of(draft.metadata.configuration),
    )
    before: list[pa.Table] = []
    after: list[pa.Table] = []
    try:
        _tell_lost(draft, writer, before)
        for found in draft.find(None, draft.own_files):
            if draft.is_new(found.file.path):
                writer.insert(found.rows)
            else:
                after.append(found.rows)
        if sum(map(len, before)) == sum(map(len, after)):
            if after:
                writer.update(pa.concat_tables(before), pa.concat_tables(after))
        else:
            for rows in before:
                writer.delete(rows)
            for rows in after:
                writer.insert(rows)
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def _tell_lost(draft: Draft, writer: ChangeDataWriter, before: list[pa.Table]) -> None:
    """Record the base's lost rows as deleted, except changed ones, which are appended to `before`."""
    scan = TableScan(draft.store, draft.schema, draft.partition_columns, draft.base.version)
    for add, gone, replaced in draft.lost():
        for _, rows, positions in scan.positions(add_rows([add])):
            became = pc.is_in(positions, value_set=positions_of(replaced))
            is_gone = pa.repeat(pa.scalar(True), len(positions)) if gone is None else pc.is_in(positions, value_set=positions_of(gone))
            writer.delete(rows.filter(pc.and_not(is_gone, became)))
            before.append(rows.filter(became))
