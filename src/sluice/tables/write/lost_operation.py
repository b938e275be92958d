"""Which operation of a transaction lost to a commit that came first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...coordinator.errors import ConcurrentModification
from ...coordinator.rules.conflicts import Finding
from ...coordinator.rules.footprint import Footprint
from ...coordinator.rules.read_scope import ReadScope
from ...coordinator.rules.rebase import meet
from ...coordinator.rules.winner import Winner
from ...storage.actions import AddFile
from ...storage.errors import SluiceError
from ..client.access import Access
from .change import Change, Reads
from .commit_change import attempt_of

__all__ = ["operation_that_lost"]


def operation_that_lost(
    access: Access, change: Change, operations: Sequence[tuple[str, Reads | None]], lost: ConcurrentModification
) -> tuple[int, str] | None:
    """The number (from 1) and the name of the first operation that the winner concerns; None where that cannot be told.

    `operations` are those of the change in their order, each with what it read. Statistics decide where rows are not known, so the
    answer is for people: nothing depends on it.
    """
    if len(operations) == 1:
        return 1, operations[0][0]
    version = lost.details.get("winning_version")
    if version is None:
        return None
    try:
        winner = access.ours.log.winner(version)
        parts = [
            (number, name, attempt_of(access, replace(change, actions=(), reads=reads), only_reads=True))
            for number, (name, reads) in enumerate(operations, start=1)
            if reads is not None
        ]
        for number, name, attempt in parts:
            if isinstance(meet(attempt, winner, access.ours.log.rows), Finding):
                return number, name
        # what both remove was found by the conditions of the operations
        return next(((number, name) for number, name, attempt in parts if _removes_from(attempt.footprint, winner)), None)
    except SluiceError:
        return None


def _removes_from(mine: Footprint, winner: Winner) -> bool:
    """Whether the winner removed files that may hold rows of these conditions."""
    removed = [AddFile(path, r.partition_values or {}, 0, 0, True, stats=r.stats) for path, r in winner.removed.items()]
    return bool(ReadScope.of(mine.predicates, mine.partition_types, mine.column_types).touched(removed))
