"""RESTORE to a version or a time, and its metrics."""

from __future__ import annotations

from ..tables.read.history import entries_of
from ..tables.table import Table
from .reports import Answer, restored


def restore(table: Table, *, version: int | None = None, timestamp: int | None = None, user_metadata: str | None = None) -> Answer:
    """Make the table what it was; nothing is committed, and the counts are 0, if it is that already."""
    commit = table.restore(version, timestamp, user_metadata=user_metadata)
    if commit is None:
        now = table.snapshot().raw
        return restored({"tableSizeAfterRestore": now.size_bytes, "numOfFilesAfterRestore": now.num_files})
    [entry] = [each for each in entries_of(table.access, commit.version) if each.transaction_id == commit.transaction_id]
    return restored(entry.metrics)
