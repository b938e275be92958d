"""Files of a table as actions, and what their statistics count."""

from __future__ import annotations

from collections.abc import Iterable

from ..storage.actions import AddFile, RemoveFile
from ..storage.wide_stats import live_count

__all__ = ["removal", "row_count"]


def row_count(adds: Iterable[AddFile]) -> int:
    """The rows that are left in files as their statistics count them; a file without statistics counts none."""
    return sum(live_count(add) or 0 for add in adds)


def removal(add: AddFile, now_ms: int) -> RemoveFile:
    """The action that removes a file, with its metadata, so that the file can be found and its space be counted."""
    return RemoveFile(
        path=add.path,
        data_change=True,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
        stats=add.stats,
        tags=add.tags,
    )
