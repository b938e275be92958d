"""Kinds of operations, as the conflict policies distinguish them."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from ...storage.actions import AddFile, RemoveFile

# Operations in Delta's commitInfo that say more than the actions do; for others the actions decide.
_REPLACING: Final = ("TRUNCATE", "RESTORE", "CLONE", "REPLACE TABLE", "CREATE OR REPLACE TABLE")
_CHANGING: Final = ("DELETE", "UPDATE", "MERGE")


class Kind(str, Enum):
    """The classes of MaxCompute's matrices; every transaction belongs to one.

    A transaction with several operations is of the strictest class among them: CHANGE over OVERWRITE over APPEND.
    """

    APPEND = "append"
    """Adds rows and removes none (INSERT INTO)."""
    OVERWRITE = "overwrite"
    """Replaces or empties the table or whole partitions (INSERT OVERWRITE, TRUNCATE)."""
    CHANGE = "change"
    """Changes or deletes rows (UPDATE, DELETE, MERGE, upsert, an overwrite whose condition names data columns)."""
    MINOR = "minor-compaction"
    """Merges small files; changes no data."""
    MAJOR = "major-compaction"
    """Writes a new base without deleted rows; changes no data."""
    OTHER = "other"
    """Changes no rows and reorganises none: properties, attach, detach."""


def class_of(operation: str, adds: Collection[AddFile], removes: Collection[RemoveFile], *, mode: str = "") -> Kind:
    """The kind of a commit that does not name it, from its operation, its write mode (as in commitInfo) and its actions."""
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
