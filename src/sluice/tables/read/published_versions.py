"""The published versions of a table, for callers that poll or wait: by watches in the coordinator, or by looking at the store.

With the coordinator it costs nothing as long as nothing was committed. Without it, the pauses between two looks at the store grow while
nothing is new.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Final, Protocol

from ...coordinator.api import Clock, Deadline, SystemClock, VersionWatch
from ...storage.log.segment import latest_version, list_versions
from ...storage.stores.objects import ObjectStore
from ..client.open_table import ReadTable
from ..client.published_table import PublishedTable

_SHORTEST_PAUSE_S: Final = 0.05


class PublishedVersions(Protocol):
    """The last published version. One thread asks at a time; any may `close`."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        ...

    def close(self) -> None:
        """End the waiting for good."""
        ...

    def latest(self) -> int:
        """The last published version as far as is known now; -1 before the first. Raises Unavailable, TableDropped."""
        ...

    def wait(self, after: int, deadline: Deadline | None = None) -> int:
        """The last published version once it is higher than `after`; `after` when closed, or when the deadline passes."""
        ...


def published_versions(table: ReadTable, longest_pause_s: float, clock: Clock | None = None) -> PublishedVersions:
    """By watches, or, for a table opened without its coordinator, by looks at the store at most `longest_pause_s` apart."""
    if isinstance(table, PublishedTable):
        return _PolledLog(table.store, longest_pause_s, clock or SystemClock())
    return VersionWatch(table.context, partial(table.publish, up_to_date=True))


class _PolledLog:
    """Lists the end of the log, less and less often while nothing is new."""

    def __init__(self, store: ObjectStore, longest_pause_s: float, clock: Clock) -> None:
        self._store, self._longest_pause_s, self._clock = store, longest_pause_s, clock
        self._end = threading.Event()
        self._latest = -1
        self._pause_s = 0.0
        self._looked_s: float | None = None

    @property
    def closed(self) -> bool:
        return self._end.is_set()

    def close(self) -> None:
        self._end.set()

    def latest(self) -> int:
        if self._looked_s is None or self._clock.monotonic_s() - self._looked_s >= self._pause_s:
            self._look()
        return self._latest

    def wait(self, after: int, deadline: Deadline | None = None) -> int:
        while not self.closed:
            self._look()
            if self._latest > after:
                return self._latest
            if deadline is not None and deadline.over:
                break
            self._end.wait(self._pause_s if deadline is None else min(self._pause_s, deadline.left_s))
        return after

    def _look(self) -> None:
        if self._latest < 0:
            found = latest_version(self._store)
        else:
            found = max(list_versions(self._store, self._latest).commits, default=self._latest)
        self._looked_s = self._clock.monotonic_s()
        if found is not None and found > self._latest:
            self._latest, self._pause_s = found, min(_SHORTEST_PAUSE_S, self._longest_pause_s)
        else:
            self._pause_s = min(max(2 * self._pause_s, _SHORTEST_PAUSE_S), self._longest_pause_s)
