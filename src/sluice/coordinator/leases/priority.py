"""Priority after losses: how a transaction gets through against any number of others.

Each attempt takes a lease before it reads anything, in one request for all of its tables, and releases it at its end:

| attempts that lost in a row | the next one keeps out |
|---|---|
| 1 | changes of what the lost one had read, except plain appends |
| 2 | changes of its tables, except plain appends |
| 3 | commits that change or read what the lost one had read |
| 4 and more | commits that change or read its tables |

The attempt's commit depends on the lease as on any other (I9). Others wait for it as they wait for a lease.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..errors import DeadlockDetected, LeaseLost, NotCommitted
from ..nodes.lease_records import EXCLUSIVE, TURN
from ..service.clock import Deadline
from .lease import Lease, acquire
from .scopes import PartitionScope
from .table_leases import TableLeases

_log = logging.getLogger(__name__)

_STEPS: Final = ((TURN, False), (TURN, True), (EXCLUSIVE, False), (EXCLUSIVE, True))
"""The mode of the lease after one loss, two, three, and more; and whether it is on the whole of the tables."""


@dataclass(frozen=True, slots=True)
class Priority:
    """What an attempt has because those before it lost: by default it is the first one, and has nothing."""

    losses: int = 0
    """How many attempts in a row lost before it."""
    lease: Lease | None = None
    """What keeps others out; None for a first attempt, and where no lease was to be had in time."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the lease, on which the commit depends."""
        return () if self.lease is None else tuple(self.lease.nodes)

    def is_to_blame(self, refusal: NotCommitted) -> bool:
        """Whether the transaction was refused only because this lease was lost, or closed a circle of waits."""
        if self.lease is None:
            return False
        return isinstance(refusal, DeadlockDetected) or (isinstance(refusal, LeaseLost) and refusal.facts.get("lease") in self.nodes)

    def end(self) -> None:
        """Let the others go on."""
        if self.lease is not None:
            self.lease.release()


def priority_after(losses: int, reads: Sequence[tuple[TableLeases, PartitionScope | None]], wait: Deadline) -> Priority:
    """The priority after so many losses in a row, the last of which had read these parts of tables (None: the whole of one).

    Waits for the lease for half of the time, since the other half is for the commit; then goes on without it, as beside somebody's lease
    on another part of the table.
    """
    # check: losers-have-their-turn
    if losses and reads:
        mode, whole = _STEPS[min(losses, len(_STEPS)) - 1]
        name = f"after {losses} {'loss' if losses == 1 else 'losses'}"
        requests = [table.wanted(mode, None if whole else scope, name) for table, scope in reads]
        try:
            return Priority(losses, acquire(reads[0][0].home, requests, Deadline.after(wait.left_s / 2, wait.clock)))
        except (NotCommitted, Unavailable) as without:
            _log.info("a transaction goes on without priority %s: %s", name, without)
    return Priority(losses)
