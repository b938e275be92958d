"""Which operation of a transaction conflicts with a commit that came first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...storage.actions import AddFile
from ...storage.errors import SluiceError
from ..errors import ConcurrentModification
from ..rules.conflicts import Finding
from ..rules.footprint import Footprint
from ..rules.read_scope import ReadScope
from ..rules.rebase import meet
from ..rules.winner import Winner
from .change import Change, Reads
from .table_client import TableClient
from .validation import attempt_of

__all__ = ["operation_that_lost"]


def operation_that_lost(
    table: TableClient, change: Change, operations: Sequence[tuple[str, Reads | None]], lost: ConcurrentModification
) -> tuple[int, str] | None:
    """The number (from 1) and the name of the first operation that conflicts with the winner; None if unknown.

    `operations` are those of the change in order, each with what it read. Statistics decide if rows are not known, so the
    answer is for people: nothing depends on it.
    """
    if len(operations) == 1:
        return 1, operations[0][0]
    version = lost.details.get("winning_version")
    if version is None:
        return None
    try:
        winner = table.log.winner(version)
        parts = [
            (number, name, attempt_of(table, replace(change, actions=(), reads=reads), only_reads=True))
            for number, (name, reads) in enumerate(operations, start=1)
            if reads is not None
        ]
        for number, name, attempt in parts:
            if isinstance(meet(attempt, winner, table.log.rows), Finding):
                return number, name
        # files that both remove were found by the operations' conditions
        return next(((number, name) for number, name, attempt in parts if _removes_from(attempt.footprint, winner)), None)
    except SluiceError:
        return None


def _removes_from(mine: Footprint, winner: Winner) -> bool:
    """Whether the winner removed files that may have rows of these conditions."""
    removed = [AddFile(path, r.partition_values or {}, 0, 0, True, stats=r.stats) for path, r in winner.removed.items()]
    return bool(ReadScope.of(mine.predicates, mine.partition_types, mine.column_types).touched(removed))
