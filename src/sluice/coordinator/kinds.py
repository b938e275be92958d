"""What sort of operation a transaction is, as the conflict policies ask for it."""

from __future__ import annotations

from enum import Enum

__all__ = ["Kind"]


class Kind(str, Enum):
    """The classes of MaxCompute's matrices; every transaction is of one.

    A transaction that carries several operations is of the strictest class among them: CHANGE over OVERWRITE over APPEND.
    """

    APPEND = "append"
    """Adds rows and removes none (INSERT INTO)."""
    OVERWRITE = "overwrite"
    """Replaces the table or whole partitions of it, or empties them (INSERT OVERWRITE, TRUNCATE)."""
    CHANGE = "change"
    """Changes or deletes rows (UPDATE, DELETE, MERGE, upsert, an overwrite whose condition names data columns)."""
    MINOR = "minor-compaction"
    """Merges small files; changes no data."""
    MAJOR = "major-compaction"
    """Writes a new base without deleted rows; changes no data."""
    OTHER = "other"
    """Changes no rows and reorganises none: properties, attach, detach."""
