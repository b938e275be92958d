"""Row ids: the numbers that a table with row tracking gives to the rows of every new file ("Row Tracking" in PROTOCOL.md).

A file's rows are numbered from its base row id on, in order. The next free id is known when the version is decided, and
files get their ids when it is rendered, so a rebased commit need not rewrite anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import orjson

from ...storage.actions import Action, AddFile, DomainMetadata, decode_text, encode
from ...storage.actions.row_tracking import ROW_TRACKING_DOMAIN
from ...storage.actions.texts import Text
from ...storage.actions.wide_statistics import record_count

__all__ = ["RowCountMissing", "numbered", "rows_to_number"]


class RowCountMissing(ValueError):
    """Raised when a new file does not say how many rows it has."""


def _new_rows(action: Action) -> int | None:
    """How many row ids an action needs; None if it adds no new file."""
    if not isinstance(action, AddFile) or action.base_row_id is not None:
        return None
    counted = record_count(action.stats)
    if counted is None:
        raise RowCountMissing(f"the new file {action.path!r} has no numRecords in its statistics, which row tracking needs")
    return counted


def rows_to_number(actions: Text) -> int:
    """How many row ids the new files among the actions need. Raises RowCountMissing."""
    return sum(_new_rows(each) or 0 for each in _decoded(actions))


def numbered(actions: Text, *, first: int, version: int) -> Text:
    """The actions of one version with row ids from `first` on for its new files, and the new high-water mark."""
    following = first
    result = bytearray()
    for action in _decoded(actions):
        count = _new_rows(action)
        if isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING_DOMAIN:
            continue
        if isinstance(action, AddFile) and count is not None:
            action = replace(action, base_row_id=following, default_row_commit_version=version)
            following += count
        result += encode(action) + b"\n"
    mark = orjson.dumps({"rowIdHighWaterMark": following - 1}).decode()
    result += encode(DomainMetadata(ROW_TRACKING_DOMAIN, mark, removed=False)) + b"\n"
    return bytes(result)


def _decoded(actions: Text) -> Iterable[Action]:
    return decode_text(actions, name="actions") if actions else ()
