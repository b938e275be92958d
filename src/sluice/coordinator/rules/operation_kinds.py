"""What sort of operation a transaction is, as the conflict policies ask for it."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from ...storage.actions import AddFile, RemoveFile

__all__ = ["Kind", "class_of"]

# Operations of Delta's commitInfo that say more than the actions do; of others the actions tell what they did.
_REPLACING: Final = ("TRUNCATE", "RESTORE", "CLONE", "REPLACE TABLE", "CREATE OR REPLACE TABLE")
_CHANGING: Final = ("DELETE", "UPDATE", "MERGE")


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


def class_of(operation: str, adds: Collection[AddFile], removes: Collection[RemoveFile], *, mode: str = "") -> Kind:
    """The kind of a commit that does not say it: by its operation, its write mode (as commitInfo names them) and its actions."""
    name = operation.upper()
    if name.startswith(_REPLACING):
        return Kind.OVERWRITE
    if not adds and not removes:
        return Kind.OTHER
    if not any(add.data_change for add in adds) and not any(remove.data_change for remove in removes):
        return Kind.MAJOR if name.startswith("REORG") else Kind.MINOR
    removed = {remove.path for remove in removes}
    if name.startswith(_CHANGING) or any(add.path in removed for add in adds):
        return Kind.CHANGE
    if mode.lower() == "overwrite" or not adds:
        return Kind.OVERWRITE
    if not removes:
        return Kind.APPEND
    return Kind.OVERWRITE if name == "WRITE" else Kind.CHANGE
