"""sluice: many writers, one Delta table, nothing lost.

ZooKeeper orders and decides, the object store holds every byte, Spark does the data work.

Each name is imported on first use: a program that only reads one table loads neither Spark nor an S3 client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import attach

if TYPE_CHECKING:
    from . import errors as errors
    from . import metrics as metrics
    from . import tracing as tracing
    from .coordinator.api import Commit as Commit
    from .coordinator.api import Deadline as Deadline
    from .coordinator.api import Lease as Lease
    from .coordinator.api import LeaseOn as LeaseOn
    from .coordinator.api import Outcome as Outcome
    from .coordinator.api import lease as lease
    from .coordinator.api import lease_on as lease_on
    from .coordinator.api import leases as leases
    from .delta.streaming import Stream as Stream
    from .delta.streaming import stream as stream
    from .installation import __version__ as __version__
    from .joining import transact as transact
    from .joining import transaction as transaction
    from .operating.contention import conflicts as conflicts
    from .operating.doctor import Diagnosis as Diagnosis
    from .operating.doctor import doctor as doctor
    from .operating.doctor import doctor_all as doctor_all
    from .operating.document import Status as Status
    from .operating.status import Health as Health
    from .operating.status import health as health
    from .operating.status import status as status
    from .operating.tree_backup import backup_tree as backup_tree
    from .operating.tree_backup import restore_tree as restore_tree
    from .spark_integration import read as read
    from .spark_integration import unroute as unroute
    from .spark_integration import use_session as use_session
    from .spark_session import configure as configure
    from .statements.spark.engine import sql as sql
    from .tables.catalog import Catalog as Catalog
    from .tables.catalog import DroppedTable as DroppedTable
    from .tables.catalog import NamedTable as NamedTable
    from .tables.catalog import Namespace as Namespace
    from .tables.consumer import Consumer as Consumer
    from .tables.joint_transaction import CommitInfo as CommitInfo
    from .tables.joint_transaction import JointTransaction as JointTransaction
    from .tables.joint_transaction import outcome as outcome
    from .tables.joint_transaction import read_together as read_together
    from .tables.maintain.vacuum import VacuumReport as VacuumReport
    from .tables.manage.analyzing import Analysis as Analysis
    from .tables.manage.definition import ColumnChange as ColumnChange
    from .tables.manage.definition import NewColumn as NewColumn
    from .tables.manage.dropping import DropReport as DropReport
    from .tables.manage.dropping import forget as forget
    from .tables.manage.moving import move as move
    from .tables.manage.recovery import RecoveryReport as RecoveryReport
    from .tables.manage.recovery import recover as recover
    from .tables.manage.recovery import recover_all as recover_all
    from .tables.read.following import ChangeBatch as ChangeBatch
    from .tables.read.following import ConsumerState as ConsumerState
    from .tables.read.following import Follower as Follower
    from .tables.read.history import HistoryEntry as HistoryEntry
    from .tables.read.table_snapshot import TableDetail as TableDetail
    from .tables.read.table_snapshot import TableSnapshot as TableSnapshot
    from .tables.read.versions import ChangePlace as ChangePlace
    from .tables.table import Table as Table
    from .tables.transaction import Transaction as Transaction
    from .tables.write.data_writing import WritePlan as WritePlan
else:
    __getattr__, __dir__, __all__ = attach(__name__)
