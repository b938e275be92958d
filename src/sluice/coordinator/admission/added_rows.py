"""Reads files that others added where a transaction read: do they have rows that it would have read?

Statistics say what a file may contain. In tables with deletion vectors, the owner reads a file that statistics cannot
exclude before it treats the file as a conflict.
"""

from __future__ import annotations

from typing import Final

from ...storage.actions.filetable import add_rows
from ...storage.data.scan import TableScan
from ...storage.errors import SluiceError
from ...storage.pruning.predicate import Predicate
from ...storage.stores.objects import ObjectStore
from ..rules.winner import Winner
from .change import Change

__all__ = ["holding_nothing_read"]

_BYTES_MAX: Final = 64 * 1024 * 1024


def holding_nothing_read(store: ObjectStore, change: Change, winner: Winner) -> frozenset[str]:
    """The log paths of a winner's new files without any row that the change would have read.

    Empty if there is too much to read, or if a file cannot be read (any more).
    """
    added = [add for add in winner.adds if add.data_change]
    if change.reads is None or change.schema is None or change.snapshot is None or sum(add.size for add in added) > _BYTES_MAX:
        return frozenset()
    if change.reads.whole_table or "" in change.reads.predicates:
        return frozenset()
    predicates = [Predicate.parse(sql, change.schema) for sql in change.reads.predicates]
    scan = TableScan(store, change.schema, change.snapshot.partition_columns, winner.version)
    cleared: set[str] = set()
    for add in added:
        files = add_rows([add])
        try:
            found = any(batch.num_rows for predicate in predicates for batch in scan.batches(files, [], predicate))
        except SluiceError:
            continue  # unknown, so it stays a conflict
        # check: looking-into-files-finds-rows (always)
        if not found:
            cleared.add(add.path)
    return frozenset(cleared)
