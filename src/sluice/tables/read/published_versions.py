"""The last published version, for a reader that asks again and again: by a watch in the coordinator, or by looking at the store.

With the coordinator, asking costs nothing as long as nothing was committed: a watch sets a flag. Without it, the pauses between two
looks at the store grow while nothing is new.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

from ...coordinator.facade.table import CoordinatedTable
from ...coordinator.facade.values import DEFAULT_TIMEOUT_S, Clock, SystemClock
from ...storage.log.segment import latest_version, list_versions
from ...storage.stores.objects import ObjectStore
from ..client.access import Access

__all__ = ["PublishedVersions", "published_versions"]

_SHORTEST_PAUSE_S: Final = 0.05
_PUBLISHED_WITHIN_S: Final = 1.0
"""A version that is ratified and not published for longer than this has lost its writer: the reader publishes it."""


class PublishedVersions(Protocol):
    """The last published version, asked for often."""

    def latest(self) -> int:
        """The last published version as far as is known now; -1 before the first. Raises Unavailable, TableDropped."""
        ...


def published_versions(access: Access, longest_pause_s: float, clock: Clock | None = None) -> PublishedVersions:
    """By a watch, or, for a table opened without its coordinator, by looks at the store at most `longest_pause_s` apart."""
    clock = clock or SystemClock()
    return _Polled(access.store, longest_pause_s, clock) if access.reads_only else _Watched(access.ours, clock)


class _Watched:
    """Asks the coordinator when it said that something changed."""

    def __init__(self, ours: CoordinatedTable, clock: Clock) -> None:
        self._ours, self._clock = ours, clock
        self._changed = threading.Event()
        self._changed.set()
        self._latest = -1
        self._behind_since_s: float | None = None

    def latest(self) -> int:
        if self._changed.is_set():
            self._look()
        elif self._behind_since_s is not None and self._clock.monotonic_s() - self._behind_since_s > _PUBLISHED_WITHIN_S:
            with self._ours.bounding(DEFAULT_TIMEOUT_S):
                self._latest = max(self._latest, self._ours.publish())
            self._behind_since_s = None
        return self._latest

    def _look(self) -> None:
        self._changed.clear()  # before looking: what changes meanwhile sets it again
        try:
            with self._ours.bounding(DEFAULT_TIMEOUT_S):
                published, ratified = self._ours.watched(self._changed.set)
        except BaseException:
            self._changed.set()
            raise
        self._latest = published
        self._behind_since_s = None if ratified <= published else self._clock.monotonic_s()


class _Polled:
    """Lists the end of the log, less and less often while nothing is new."""

    def __init__(self, store: ObjectStore, longest_pause_s: float, clock: Clock) -> None:
        self._store, self._longest_pause_s, self._clock = store, longest_pause_s, clock
        self._latest = -1
        self._pause_s = 0.0
        self._looked_s: float | None = None

    def latest(self) -> int:
        now_s = self._clock.monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s < self._pause_s:
            return self._latest
        if self._latest < 0:
            found = latest_version(self._store)
        else:
            found = max(list_versions(self._store, self._latest).commits, default=self._latest)
        self._looked_s = now_s
        if found is not None and found > self._latest:
            self._latest, self._pause_s = found, min(_SHORTEST_PAUSE_S, self._longest_pause_s)
        else:
            self._pause_s = min(max(2 * self._pause_s, _SHORTEST_PAUSE_S), self._longest_pause_s)
        return self._latest
