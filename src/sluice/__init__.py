"""sluice: many writers, one Delta table, nothing lost.

ZooKeeper orders and decides, the object store holds every byte, Spark does the data work.

Each name is imported on first use: a program that only reads one table loads neither Spark nor an S3 client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .version import __version__

if TYPE_CHECKING:
    from .coordinator.api import Commit, Deadline, Lease, LeaseOn, Outcome, lease, lease_on, leases
    from .coordinator.errors import (
        ConcurrentAppendException,
        ConcurrentDeleteDeleteException,
        ConcurrentDeleteReadException,
        ConcurrentModification,
        ConcurrentTransactionException,
        CoordinatorUnavailable,
        DeadlockDetected,
        HalfCommitted,
        InvalidName,
        LeaseHeld,
        LeaseLost,
        MetadataChangedException,
        NamespaceExists,
        NamespaceNotEmpty,
        NamespaceNotFound,
        NotCommitted,
        OutcomeUnknown,
        PolicyConflictException,
        ProtocolChangedException,
        ProtocolMismatch,
        Refused,
        SessionLost,
        TransactionExpired,
        TreeReplaced,
        UnknownFormat,
        Withdrawn,
        WrongCoordinator,
    )
    from .coordinator.health import Health, health
    from .delta.streaming import Stream, stream
    from .joining import transact, transaction
    from .spark_integration import read, unroute, use_session
    from .spark_session import configure
    from .statements.spark.running import sql
    from .storage.errors import (
        AccessDenied,
        BadChecksum,
        ConstraintViolated,
        Corrupt,
        CorruptLogFile,
        ForeignCommit,
        HistoryGone,
        InvalidArgument,
        InvalidRequest,
        InvariantBroken,
        LogGap,
        MissingObject,
        NoSuchBucket,
        NotATable,
        NullNotAllowed,
        PredicateError,
        SchemaMismatch,
        SluiceError,
        StorageFull,
        StorageUnavailable,
        TableDropped,
        TableExists,
        TableNotFound,
        Unavailable,
        UnknownScheme,
        UnsupportedFeature,
        VersionNotFound,
    )
    from .tables.catalog.catalog import Catalog, DroppedTable, NamedTable, Namespace
    from .tables.consumer import Consumer
    from .tables.joint_transaction import CommitInfo, JointTransaction, read_together
    from .tables.maintain.vacuum import VacuumReport
    from .tables.manage.analyzing import Analysis
    from .tables.manage.columns import ColumnChange, NewColumn
    from .tables.manage.doctor import Diagnosis, doctor
    from .tables.manage.dropping import DropReport, forget
    from .tables.manage.recovery import Recovered, RecoveryReport, recover, recover_all
    from .tables.outcome import outcome
    from .tables.read.changed_files import ChangePlace
    from .tables.read.consumer_states import ConsumerState
    from .tables.read.following import ChangeBatch, Follower
    from .tables.read.history import HistoryEntry
    from .tables.read.table_snapshot import TableDetail, TableSnapshot
    from .tables.table import Table
    from .tables.transaction import Transaction
    from .tables.write.data_writing import WritePlan

__all__ = [
    "AccessDenied",
    "Analysis",
    "BadChecksum",
    "Catalog",
    "ChangeBatch",
    "ChangePlace",
    "ColumnChange",
    "Commit",
    "CommitInfo",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentModification",
    "ConcurrentTransactionException",
    "ConstraintViolated",
    "Consumer",
    "ConsumerState",
    "CoordinatorUnavailable",
    "Corrupt",
    "CorruptLogFile",
    "Deadline",
    "DeadlockDetected",
    "Diagnosis",
    "DropReport",
    "DroppedTable",
    "Follower",
    "ForeignCommit",
    "HalfCommitted",
    "Health",
    "HistoryEntry",
    "HistoryGone",
    "InvalidArgument",
    "InvalidName",
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
    "NamedTable",
    "Namespace",
    "NamespaceExists",
    "NamespaceNotEmpty",
    "NamespaceNotFound",
    "NewColumn",
    "NoSuchBucket",
    "NotATable",
    "NotCommitted",
    "NullNotAllowed",
    "Outcome",
    "OutcomeUnknown",
    "PolicyConflictException",
    "PredicateError",
    "ProtocolChangedException",
    "ProtocolMismatch",
    "Recovered",
    "RecoveryReport",
    "Refused",
    "SchemaMismatch",
    "SessionLost",
    "SluiceError",
    "StorageFull",
    "StorageUnavailable",
    "Stream",
    "Table",
    "TableDetail",
    "TableDropped",
    "TableExists",
    "TableNotFound",
    "TableSnapshot",
    "Transaction",
    "TransactionExpired",
    "TreeReplaced",
    "Unavailable",
    "UnknownFormat",
    "UnknownScheme",
    "UnsupportedFeature",
    "VacuumReport",
    "VersionNotFound",
    "Withdrawn",
    "WritePlan",
    "WrongCoordinator",
    "__version__",
    "configure",
    "doctor",
    "forget",
    "health",
    "lease",
    "lease_on",
    "leases",
    "outcome",
    "read",
    "read_together",
    "recover",
    "recover_all",
    "sql",
    "stream",
    "transact",
    "transaction",
    "unroute",
    "use_session",
]

_HOMES: Final = {
    "coordinator.api": ("Commit", "Deadline", "Lease", "LeaseOn", "Outcome", "lease", "lease_on", "leases"),
    "coordinator.health": ("Health", "health"),
    "delta.streaming": ("Stream", "stream"),
    "joining": ("transact", "transaction"),
    "tables.outcome": ("outcome",),
    "tables.catalog.catalog": ("Catalog", "DroppedTable", "NamedTable", "Namespace"),
    "tables.manage.columns": ("ColumnChange", "NewColumn"),
    "tables.manage.doctor": ("Diagnosis", "doctor"),
    "tables.consumer": ("Consumer",),
    "tables.read.consumer_states": ("ConsumerState",),
    "tables.read.changed_files": ("ChangePlace",),
    "tables.read.following": ("ChangeBatch", "Follower"),
    "tables.read.history": ("HistoryEntry",),
    "tables.manage.dropping": ("DropReport", "forget"),
    "tables.manage.recovery": ("Recovered", "RecoveryReport", "recover", "recover_all"),
    "tables.joint_transaction": ("CommitInfo", "JointTransaction", "read_together"),
    "tables.table": ("Table",),
    "tables.transaction": ("Transaction",),
    "tables.maintain.vacuum": ("VacuumReport",),
    "tables.manage.analyzing": ("Analysis",),
    "tables.read.table_snapshot": ("TableDetail", "TableSnapshot"),
    "tables.write.data_writing": ("WritePlan",),
    "spark_integration": ("read", "unroute", "use_session"),
    "spark_session": ("configure",),
    "statements.spark.running": ("sql",),
}
"""The modules that define the public names, other than errors."""
_ON_SPARK: Final = ("delta.streaming", "spark_integration", "spark_session", "statements.spark.running")
_ERRORS: Final = ("coordinator.errors", "storage.errors")

_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use. Raises ImportError for one that needs PySpark if that is missing."""
    if name not in __all__:
        raise AttributeError(f"module 'sluice' has no attribute {name!r}")
    module = _HOME_OF.get(name) or next(each for each in _ERRORS if name in import_module(f".{each}", __name__).__all__)
    try:
        value = getattr(import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as error:
        if module not in _ON_SPARK or (error.name or "").partition(".")[0] != "pyspark":
            raise
        from .installation import install_command

        raise ImportError(f"sluice.{name} needs PySpark, which is not installed: {install_command('spark')}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
