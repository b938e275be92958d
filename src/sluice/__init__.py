"""sluice: many writers, one Delta table, nothing lost.

ZooKeeper orders and decides, the object store holds every byte, Spark does the data work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .coordinator.clock import Deadline
from .coordinator.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentModification,
    ConcurrentTransactionException,
    CoordinatorUnavailable,
    DeadlockDetected,
    HalfCommitted,
    LeaseHeld,
    LeaseLost,
    MetadataChangedException,
    NotCommitted,
    OutcomeUnknown,
    PolicyConflictException,
    ProtocolChangedException,
    ProtocolMismatch,
    Refused,
    SessionLost,
    TransactionExpired,
    TreeReplaced,
    Withdrawn,
)
from .coordinator.leases import Lease
from .coordinator.outcomes import Commit, Outcome
from .joining import transact, transaction
from .storage.errors import (
    AccessDenied,
    BadChecksum,
    ConstraintViolated,
    Corrupt,
    CorruptLogFile,
    ForeignCommit,
    InvalidRequest,
    InvariantBroken,
    LogGap,
    MissingObject,
    NoSuchBucket,
    NotATable,
    PredicateError,
    SchemaMismatch,
    SluiceError,
    StorageFull,
    StorageUnavailable,
    TableExists,
    TableNotFound,
    Unavailable,
    UnknownScheme,
    UnsupportedFeature,
    VersionNotFound,
)
from .tables.asking import outcome
from .tables.history import HistoryEntry
from .tables.locking import LeaseOn, lease, lease_on, leases
from .tables.recovery import RecoveryReport, recover
from .tables.several import CommitInfo, JointTransaction, read_together
from .tables.table import Table
from .tables.transaction import Transaction
from .tables.vacuum import VacuumReport
from .tables.views import TableSnapshot
from .tables.writing import WritePlan
from .version import __version__

if TYPE_CHECKING:
    from .spark_integration import configure, read, use_session

__all__ = [
    "AccessDenied",
    "BadChecksum",
    "Commit",
    "CommitInfo",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentModification",
    "ConcurrentTransactionException",
    "ConstraintViolated",
    "CoordinatorUnavailable",
    "Corrupt",
    "CorruptLogFile",
    "Deadline",
    "DeadlockDetected",
    "ForeignCommit",
    "HalfCommitted",
    "HistoryEntry",
    "InvalidRequest",
    "InvariantBroken",
    "JointTransaction",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "LeaseOn",
    "LogGap",
    "MetadataChangedException",
    "MissingObject",
    "NoSuchBucket",
    "NotATable",
    "NotCommitted",
    "Outcome",
    "OutcomeUnknown",
    "PolicyConflictException",
    "PredicateError",
    "ProtocolChangedException",
    "ProtocolMismatch",
    "RecoveryReport",
    "Refused",
    "SchemaMismatch",
    "SessionLost",
    "SluiceError",
    "StorageFull",
    "StorageUnavailable",
    "Table",
    "TableExists",
    "TableNotFound",
    "TableSnapshot",
    "Transaction",
    "TransactionExpired",
    "TreeReplaced",
    "Unavailable",
    "UnknownScheme",
    "UnsupportedFeature",
    "VacuumReport",
    "VersionNotFound",
    "Withdrawn",
    "WritePlan",
    "__version__",
    "configure",
    "lease",
    "lease_on",
    "leases",
    "outcome",
    "read",
    "read_together",
    "recover",
    "transact",
    "transaction",
    "use_session",
]

_NEED_PYSPARK = ("configure", "read", "use_session")


def __getattr__(name: str) -> Any:
    """Names that need PySpark are imported when they are first used, so that plain Python programs need none."""
    if name in _NEED_PYSPARK:
        try:
            from . import spark_integration
        except ModuleNotFoundError as error:
            raise ImportError(f"sluice.{name} needs PySpark, which is not installed: pip install 'sluice-delta[spark]'") from error
        return getattr(spark_integration, name)
    raise AttributeError(f"module 'sluice' has no attribute {name!r}")
