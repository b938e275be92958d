"""The action that takes a file out of a table ("Add File and Remove File" in PROTOCOL.md)."""

from __future__ import annotations

from .records import AddFile, RemoveFile

__all__ = ["removal"]


def removal(add: AddFile, now_ms: int | None, *, data_change: bool = True) -> RemoveFile:
    """The action that removes a file, with its metadata, so that the file can be found and its space be counted."""
    return RemoveFile(
        path=add.path,
        data_change=data_change,
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
