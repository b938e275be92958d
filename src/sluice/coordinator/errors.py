"""The errors of committing: what is certain about the outcome decides the class.

::

    SluiceError
      NotCommitted                          certainly not in the log
        ConcurrentModification              Delta's names below it
          ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException,
          MetadataChangedException, ProtocolChangedException, ConcurrentTransactionException,
          PolicyConflictException
        LeaseHeld                           somebody else holds a lease that covers it
        LeaseLost                           a lease it depends on is gone
        DeadlockDetected                    who would have to let go waits for what is held here
        TransactionExpired                  its client was taken for dead, and its files for garbage: begin it again
        Refused                             the intent itself was not acceptable (malformed, staged object missing, ...)
        Withdrawn                           its owner took it back before it was decided
      OutcomeUnknown                        the caller's time ran out before an answer; ask outcome(transaction_id)
      Unavailable
        CoordinatorUnavailable              ZooKeeper cannot be reached
          SessionLost                       the session expired: whatever hung on it is gone
      InvalidRequest
        ProtocolMismatch                    the tree in ZooKeeper was made for another protocol number
          UnknownFormat                     a record of it was written by a newer release
        NotATable
          WrongCoordinator                  the table belongs to another coordinator: use that one
      Corrupt
        HalfCommitted                       lost in one of its tables with the coordinator's data: write that part again
        TreeReplaced                        the tree was rebuilt since the table was opened: open it again

The class names that end in Exception are those of `delta.exceptions`, so that code that catches them by name goes on
to work; PolicyConflictException alone is ours, for tables with a policy that Delta does not have.
"""

from __future__ import annotations

from typing import Any

from ..storage.errors import Corrupt, InvalidRequest, NotATable, SluiceError, Unavailable

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentModification",
    "ConcurrentTransactionException",
    "CoordinatorUnavailable",
    "DeadlockDetected",
    "HalfCommitted",
    "LeaseHeld",
    "LeaseLost",
    "MetadataChangedException",
    "NotCommitted",
    "OutcomeUnknown",
    "PolicyConflictException",
    "ProtocolChangedException",
    "ProtocolMismatch",
    "Refused",
    "SessionLost",
    "TransactionExpired",
    "TreeReplaced",
    "UnknownFormat",
    "Withdrawn",
    "WrongCoordinator",
]


class NotCommitted(SluiceError):
    """Raised when the transaction is certainly not in the log and never will be."""


class ConcurrentModification(NotCommitted):
    """Raised when a commit that came first conflicts; `rule`, `winning_version`, `winning_operation` tell which.

    Where that commit says who made it, `winning_application`, `winning_host`, `winning_pid`, `winning_transaction_id` and
    `winning_time_ms` (when it was filed, by its writer's clock) tell. `lost_operation` is the number, from 1, of the operation of
    this transaction that it concerns, `lost_operation_name` its name, where that can be told.

    Retryable in the sense that the operation may be run again on the new state of the table.
    """

    retryable = True


class ConcurrentAppendException(ConcurrentModification):
    """Raised when the winner added files where this transaction read."""


class ConcurrentDeleteReadException(ConcurrentModification):
    """Raised when the winner deleted a file that this transaction read."""


class ConcurrentDeleteDeleteException(ConcurrentModification):
    """Raised when the winner deleted a file that this transaction deletes too."""


class MetadataChangedException(ConcurrentModification):
    """Raised when the winner changed the table's metadata."""


class ProtocolChangedException(ConcurrentModification):
    """Raised when the winner changed the table's protocol, or created the table that this transaction creates."""


class ConcurrentTransactionException(ConcurrentModification):
    """Raised when the winner wrote the application transaction (or metadata domain) this transaction relied on."""


class PolicyConflictException(ConcurrentModification):
    """Raised when the table's conflict policy (MaxCompute's matrices) refuses this operation after the winner's."""


class LeaseHeld(NotCommitted):
    """Raised when the time ran out before somebody else let go of a lease; `facts` names holder, host and since when.

    Nothing was committed; the same call may succeed once the lease is released. `filed` says whether the refusal is on record
    under the transaction's id.
    """

    retryable = True


class LeaseLost(NotCommitted):
    """Raised when a lease that was relied on is gone: its session expired, or somebody broke it. What hung on it was not committed."""


class DeadlockDetected(NotCommitted):
    """Raised to the youngest of those who wait for each other in a circle: let go of what is held, and ask for all at once."""


class TransactionExpired(NotCommitted):
    """Raised when garbage collection took a transaction's client for dead, so that what it staged may be gone; begin it again."""

    retryable = True


class Refused(NotCommitted):
    """Raised when an intent was refused for what it is (malformed, its staged object missing, another generation)."""


class Withdrawn(NotCommitted):
    """Raised when the transaction was taken back by `withdraw` before anybody decided it."""


class OutcomeUnknown(SluiceError):
    """Raised when the caller's time ran out before an answer; `stage` tells what is durable, "staged" or "intent".

    "staged": data files at most; nothing is filed, so nothing is decided and nothing will be unless `commit` is called again.
    "intent": it is filed and will be decided, or may be: the coordinator went away while it was. Ask `outcome(transaction_id)`.
    The first is `retryable`: the same call may succeed later, and nothing can happen twice.
    """

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message, **details)
        self.retryable = details.get("stage") == "staged"


class CoordinatorUnavailable(Unavailable):
    """Raised when ZooKeeper could not be reached in the allowed time; nothing staged is lost."""


class SessionLost(CoordinatorUnavailable):
    """Raised when the coordinator's session expired; ephemeral nodes of it are gone."""


class ProtocolMismatch(InvalidRequest):
    """Raised when the coordinator's tree has another node protocol number than this sluice, or holds what a newer release wrote."""


class UnknownFormat(ProtocolMismatch):
    """Raised when a record has a format, or a version a rendering, that only a newer release of sluice knows.

    Nothing was decided, published or removed. The same call succeeds once a client of that release has gone on with it.
    """

    retryable = True


class WrongCoordinator(NotATable):
    """Raised when a table names another coordinator than the one this client uses; nothing was written.

    `owner` is the id of the table's coordinator, `found` that of this one (None where it has coordinated no table yet).
    """


class HalfCommitted(Corrupt):
    """Raised when a transaction over several tables is repeated that lost its part in some of them with the coordinator's data.

    It is `version` of the table at `location`; `missing` maps the locations of those that lack it to the versions it had there.
    """


class TreeReplaced(Corrupt):
    """Raised when the coordinator's data of a table were lost and rebuilt since it was opened; open it again."""
