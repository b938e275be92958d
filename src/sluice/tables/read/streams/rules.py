"""Where a stream begins, what it does with versions that do more than add rows, and how much it reads at once."""

from __future__ import annotations

import re

from ....storage.dataclass import dataclass

__all__ = ["Limits", "Start", "StreamRules"]


@dataclass(frozen=True, slots=True)
class StreamRules:
    """The choices of one stream; `changes`: it reads what versions inserted and deleted, not only new rows."""

    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    exclude: re.Pattern[str] | None = None
    changes: bool = False
    fail_on_data_loss: bool = True
    event_time: str | None = None
    """The column by whose values the first snapshot is read in order."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum files of a batch, and the bytes after which it takes no further file; None: no limit."""

    files: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where a new stream begins: at a version, at a time (ms since the epoch), after the latest version, or with a first snapshot."""

    version: int | None = None
    timestamp_ms: int | None = None
    latest: bool = False
