"""The errors of committing: what is certain about the outcome determines the class.

::

    SluiceError
      NotCommitted                          certainly not in the log
        ConcurrentModification              Delta's names below it
          ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException,
          MetadataChangedException, ProtocolChangedException, ConcurrentTransactionException,
          PolicyConflictException
        QuotaExceeded                       its application is over a quota: wait longer, or change the quota
        LeaseHeld                           another client holds a lease that covers it
        LeaseLost                           a lease it depends on is gone
        DeadlockDetected                    the holder waits for a lease held here
        TransactionExpired                  its client was taken for dead, and its files for garbage: begin it again
        Refused                             the intent itself is invalid (malformed, staged object missing, ...)
        Withdrawn                           its owner withdrew it before it was decided
      OutcomeUnknown                        the caller's time ran out before an answer; ask outcome(transaction_id)
      TableMoved                            the table is at another coordinator now: repeat the call, or open it there
      Unavailable
        CoordinatorUnavailable              ZooKeeper cannot be reached
          SessionLost                       the session expired, with its ephemeral nodes
      InvalidRequest
        ProtocolMismatch                    the tree in ZooKeeper was made for another protocol number
          UnknownFormat                     a record of it was written by a newer release
        InvalidName                         a name that no table or namespace can have
        NamespaceExists, NamespaceNotEmpty, NamespaceNotFound
        NotATable
          WrongCoordinator                  the table belongs to another coordinator: use that one
      Corrupt
        HalfCommitted                       lost in one of its tables with the coordinator's data: write that part again
        TreeReplaced                        the tree was rebuilt since the table was opened: open it again

The class names that end in Exception are those of `delta.exceptions`, so that code that catches them by name keeps working;
only PolicyConflictException is ours, for tables with a policy that Delta does not have.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..storage.errors import Corrupt, InvalidRequest, NotATable, SluiceError, TableDropped, Unavailable

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentModification",
    "ConcurrentTransactionException",
    "CoordinatorUnavailable",
    "DeadlockDetected",
    "HalfCommitted",
    "InvalidName",
    "LeaseHeld",
    "LeaseLost",
    "MetadataChangedException",
    "NamespaceExists",
    "NamespaceNotEmpty",
    "NamespaceNotFound",
    "NotCommitted",
    "OutcomeUnknown",
    "PolicyConflictException",
    "ProtocolChangedException",
    "ProtocolMismatch",
    "QuotaExceeded",
    "Refused",
    "SessionLost",
    "TableMoved",
    "TransactionExpired",
    "TreeReplaced",
    "UnknownFormat",
    "Withdrawn",
    "WrongCoordinator",
]


class NotCommitted(SluiceError):
    """Raised when the transaction is certainly not in the log and never will be."""


def table_dropped(location: str) -> TableDropped:
    """The error for a table that was dropped or forgotten."""
    return TableDropped(
        f"the table at {location} was dropped, or forgotten because its folder was gone (sluice drop, sluice forget); what is not "
        "committed is lost. Open or create another one, or bring back one dropped by its name (sluice tables dropped)",
        location=location,
    )


def table_moved(location: str, to: str) -> TableMoved:
    """The error for a table that went to the coordinator of this address."""
    text = f"the table at {location} moved to the coordinator {to}: repeat the call, which goes there, or open the table there"
    return TableMoved(text, location=location, to=to)


class ConcurrentModification(NotCommitted):
    """Raised when a commit that came first conflicts; `rule`, `winning_version`, `winning_operation` say which.

    If that commit names its author, so do `winning_application`, `winning_host`, `winning_pid`, `winning_transaction_id` and
    `winning_time_ms` (when it was filed, by its writer's clock). `lost_operation` is the number, from 1, of this
    transaction's operation that conflicts, `lost_operation_name` its name, if they are known.

    Retryable in the sense that the operation may be run again on the new state of the table.
    """

    retryable = True


class ConcurrentAppendException(ConcurrentModification):
    """Raised when the winner added files where this transaction read."""


class ConcurrentDeleteReadException(ConcurrentModification):
    """Raised when the winner deleted a file that this transaction read."""


class ConcurrentDeleteDeleteException(ConcurrentModification):
    """Raised when the winner deleted a file that this transaction deletes, too."""


class MetadataChangedException(ConcurrentModification):
    """Raised when the winner changed the table's metadata."""


class ProtocolChangedException(ConcurrentModification):
    """Raised when the winner changed the table's protocol, or created the table that this transaction creates."""


class ConcurrentTransactionException(ConcurrentModification):
    """Raised when the winner wrote the application transaction (or metadata domain) this transaction relied on."""


class PolicyConflictException(ConcurrentModification):
    """Raised when the table's conflict policy (MaxCompute's matrices) refuses this operation after the winner's."""


class QuotaExceeded(NotCommitted):
    """Raised when the time ran out, or would, before the application was within its quota on a table; says who uses it up.

    Nothing was filed; the same call may succeed later.
    """

    retryable = True


class LeaseHeld(NotCommitted):
    """Raised when the time ran out before a lease was released; `facts` names holder, host and since when.

    Nothing was committed; the same call may succeed once the lease is released. `filed` says whether the refusal is on
    record under the transaction's id.
    """

    retryable = True


class LeaseLost(NotCommitted):
    """Raised when a lease that was relied on is gone: its session expired, or somebody broke it. Commits that depend on it were refused."""


class DeadlockDetected(NotCommitted):
    """Raised for the newest request of a wait cycle: release the leases held, and take all of them in one request."""


class TransactionExpired(NotCommitted):
    """Raised when garbage collection took a transaction's client for dead, so that its staged files may be gone; begin it again."""

    retryable = True


class Refused(NotCommitted):
    """Raised when an intent itself is invalid (malformed, its staged object missing, another generation)."""


class Withdrawn(NotCommitted):
    """Raised when `withdraw` withdrew the transaction before it was decided."""


class OutcomeUnknown(SluiceError):
    """Raised when the caller's time ran out before an answer; `stage` says what is durable, "staged" or "intent".

    "staged": data files at most; nothing is filed, so nothing is decided and nothing will be unless `commit` is called
    again. "intent": it is filed and will be decided, or may be, if the coordinator went away meanwhile. Ask
    `outcome(transaction_id)`. The first is `retryable`: the same call may succeed later, and nothing can happen twice.
    """

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message, **details)
        self.retryable = details.get("stage") == "staged"


class TableMoved(SluiceError):
    """Raised when a table went to another coordinator, whose address is `to`: the same call goes there, or the table is opened there.

    Reads, appends and other commits of one table follow it by themselves. What cannot, such as a transaction over several tables or a
    lease, raises it; what was to be committed is in the table or not, as `outcome` says.
    """

    retryable = True

    def leaves(self, caller: object) -> None:
        """Let a table one of whose methods raises it go on at the new place: the next call goes there."""
        follow = getattr(getattr(caller, "access", None), "follow", None)
        with suppress(SluiceError):
            _ = follow and follow(self)


class CoordinatorUnavailable(Unavailable):
    """Raised when ZooKeeper could not be reached in the allowed time; staged data are not lost."""


class SessionLost(CoordinatorUnavailable):
    """Raised when the coordinator's session expired, and its ephemeral nodes with it."""


class ProtocolMismatch(InvalidRequest):
    """Raised when the coordinator's tree has another node protocol number than this sluice, or records of a newer release."""


class UnknownFormat(ProtocolMismatch):
    """Raised when a record has a format, or a version a rendering, that only a newer release of sluice knows.

    Nothing was decided, published or removed. The same call succeeds once a client of that release has continued.
    """

    retryable = True


class WrongCoordinator(NotATable):
    """Raised when a table names another coordinator than the one this client uses; nothing was written.

    `owner` is the id of the table's coordinator, `found` this coordinator's id (None if it has coordinated no table yet).
    """


class InvalidName(InvalidRequest):
    """Raised when a text cannot be the name of a table or of a namespace; says which part, and the rule."""


class NamespaceExists(InvalidRequest):
    """Raised when a namespace is to be created that exists."""


class NamespaceNotFound(InvalidRequest):
    """Raised when the coordinator knows no namespace of that name."""


class NamespaceNotEmpty(InvalidRequest):
    """Raised when a namespace is to be dropped that has tables."""


class HalfCommitted(Corrupt):
    """Raised when a transaction over several tables is repeated that was lost in some of them with the coordinator's data.

    It is `version` of the table at `location`; `missing` maps the locations of tables that lack it to their former versions.
    """


class TreeReplaced(Corrupt):
    """Raised when the coordinator has another table at the place than when it was opened: it was dropped and made again, or its data were
    lost and rebuilt. Open it again.
    """
