"""What the statistics of files count."""

from __future__ import annotations

from collections.abc import Iterable

from ...storage.actions import AddFile
from ...storage.actions.wide_statistics import live_count

__all__ = ["row_count"]


def row_count(adds: Iterable[AddFile]) -> int:
    """The rows that are left in files as their statistics count them; a file without statistics counts none."""
    return sum(live_count(add) or 0 for add in adds)
