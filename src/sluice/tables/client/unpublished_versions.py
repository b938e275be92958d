"""Versions that a table's log does not show yet when it is opened.

Ratified versions may be unpublished, because their publisher died or is about to publish. Other clients learn from the log
alone whether a table exists and is sluice's; here ratified versions count.
"""

from __future__ import annotations

from ...coordinator.facade.table import CoordinatedTable
from ...storage.errors import LogGap, NotATable, TableNotFound
from ...storage.log.snapshot import Snapshot

__all__ = ["all_published", "first_published"]


def first_published(table: CoordinatedTable) -> Snapshot:
    """The snapshot of a table that the coordinator knows but the log did not show: its first version may not be published yet."""
    if table.published_version() < 0:
        table.publish()
    try:
        return Snapshot.load(table.store)
    except (TableNotFound, NotATable) as missing:
        version = table.head().version
        raise LogGap(
            f"the coordinator keeps a table at {table.location}, at version {version}, but its log is gone ({missing.message}): "
            f"restore the log from a copy, or let go of the table: sluice forget {table.location}",
            location=table.location,
            version=version,
        ) from missing


def all_published(table: CoordinatedTable, snapshot: Snapshot) -> Snapshot:
    """The table after everything that is ratified, publishing it here if nobody has yet.

    Needed before deciding whether a table is sluice's: the version that attached or detached it may be one of those. Raises
    ForeignCommit if another engine wrote in its place, and Unavailable.
    """
    if not table.exists():
        return snapshot
    table.publish(up_to_date=True)
    return snapshot.refresh(table.store)
