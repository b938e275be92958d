"""Looking into files that others added where a transaction read: do they hold rows that it would have read?

Statistics say what a file may hold. Where rows count (tables with deletion vectors) its owner looks into a file that they
cannot exclude, before it takes the file for a conflict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...coordinator.rules.winner import Winner
from ...storage.actions.filetable import add_rows
from ...storage.data.scan import iter_files
from ...storage.errors import SluiceError
from ...storage.pruning.predicate import Predicate
from ..client.access import Access

if TYPE_CHECKING:
    from .change import Change

__all__ = ["holding_nothing_read"]

_BYTES_MAX: Final = 64 * 1024 * 1024


def holding_nothing_read(access: Access, change: Change, winner: Winner) -> frozenset[str]:
    """The log paths of those of a winner's new files that hold no row the change would have read.

    None of them when there is too much to look into, or when a file cannot be read (any more).
    """
    added = [add for add in winner.adds if add.data_change]
    if change.reads is None or change.schema is None or change.snapshot is None or sum(add.size for add in added) > _BYTES_MAX:
        return frozenset()
    if change.reads.whole_table or "" in change.reads.predicates:
        return frozenset()
    predicates = [Predicate.parse(sql, change.schema) for sql in change.reads.predicates]
    cleared: set[str] = set()
    for add in added:
        files = add_rows([add])
        try:
            found = any(
                batch.num_rows
                for predicate in predicates
                for batch in iter_files(
                    access.store,
                    files,
                    schema=change.schema,
                    partition_columns=change.snapshot.partition_columns,
                    columns=[],
                    predicate=predicate,
                    version=winner.version,
                )
            )
        except SluiceError:
            continue  # not known to hold nothing: it stays a conflict
        if not found:
            cleared.add(add.path)
    return frozenset(cleared)
