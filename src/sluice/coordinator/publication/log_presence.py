"""Whether a table's log is still in its place: no version is put into a folder that somebody moved or deleted.

An object store makes a folder when something is written into it. So a writer that continued after the folder was moved would
make another one, whose log begins in the middle.
"""

from __future__ import annotations

from typing import Final

from ...storage.errors import LogGap, ObjectNotFound
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version
from ..nodes.context import TableContext, is_closed

__all__ = ["LogPresence"]

_EVERY_S: Final = 4.0
"""Longer than the pause between a publisher's checks of its neighbourhood, so that a busy publisher makes no look of its own."""
_NEARBY: Final = "file:"


class LogPresence:
    """Looks for the newest version known to be in the log.

    On a disk it looks each time; elsewhere, where a look is a request, only if no file of the log was seen in the last
    seconds.
    """

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._seen = -1
        self._looked_s = float("-inf")

    def saw(self, version: int) -> None:
        """Note that a version is in the log."""
        self._seen = max(self._seen, version)

    def found(self, since_s: float) -> None:
        """Note that a request that began at `since_s`, by the monotonic clock, read a file of the log."""
        self._looked_s = max(self._looked_s, since_s)

    def require(self, version: int) -> None:
        """Raise LogGap if the log with this version is gone, or TableDropped if the table was dropped."""
        version = max(version, self._seen)
        now_s, store = self._context.clock.monotonic_s(), self._context.objects
        if version < 0 or (now_s - self._looked_s < _EVERY_S and not store.location.startswith(_NEARBY)):
            return
        self._looked_s = now_s
        try:
            store.head(commit_path(version))
        except ObjectNotFound:
            if latest_version(store) is None:  # otherwise the version is not published yet, or was cleaned up
                raise self._gone(version) from None
        else:
            self.saw(version)

    def _gone(self, version: int) -> Exception:
        context = self._context
        tree = context.tree
        root, tombstone = context.in_connection(lambda session: session.read_many([tree.root, tree.tombstone]))
        if tombstone is not None and (root is None or is_closed(root)):
            return context.dropped()
        return LogGap(
            f"the log of {context.tree.location} is gone, which had version {version}: its folder was moved or deleted. Nothing is "
            f"written there any more; restore it, or let go of the table: sluice forget {context.tree.location}",
            location=context.tree.location,
            version=version,
        )
