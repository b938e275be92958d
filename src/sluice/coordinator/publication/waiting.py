"""Waiting for others: how long a client waits before it does their work, and the last published version, by watches.

`published` says which versions every engine reads, `head` that more are decided. Their writers publish them. If a writer does not
within a patience, the waiting client does, so that a dead writer's last version arrives, too. Watches on both nodes tell of news:
waiting, and asking again, send no requests while nothing happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from ...storage.errors import Unavailable
from ..errors import CoordinatorUnavailable, TableMoved
from ..limits import DEFAULT_TIMEOUT_S, Limits
from ..nodes.context import TableContext
from ..nodes.records import Head, Published
from ..service.clock import Clock, Deadline, Timeout, bounding

_log = logging.getLogger(__name__)

_LOOK_S: Final = 5.0
"""How long one look waits for the coordinator, so that `close` ends the waiting soon."""
_PAUSE_S: Final = 0.5
"""The time between two looks while the coordinator is away."""


class Patience:
    """How long to wait for others; doubles each time it was used up, and starts again when something moved."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._length_s = limits.patience_s
        self._since_s = clock.monotonic_s()
        self._seen: dict[type, object] = {}

    def see(self, state: Head | Published) -> None:
        """Note the current state; patience starts again if it moved."""
        before = self._seen.setdefault(type(state), state)
        if state != before:
            self._seen[type(state)] = state
            self._since_s, self._length_s = self._clock.monotonic_s(), self._limits.patience_s

    @property
    def left_s(self) -> float:
        """Seconds until it ends."""
        # check: patience-ends (0.0 -> 1.0)
        return max(0.0, self._since_s + self._length_s - self._clock.monotonic_s())

    def used(self) -> None:
        """Another client's work was done (or tried) because patience was over."""
        self._since_s = self._clock.monotonic_s()
        self._length_s = min(self._length_s * 2, self._limits.patience_s_max)


class VersionWatch:
    """The published versions of one table, as they come. One thread asks at a time; any may `close`."""

    def __init__(self, context: TableContext, publish: Callable[[], int], elsewhere: Callable[[TableMoved], Any] | None = None) -> None:
        """`publish` publishes what is ratified, including everything acknowledged before the call, and returns the last version.

        `elsewhere` gives these three for the coordinator to which the table moved.
        """
        self._context, self._publish, self._elsewhere = context, publish, elsewhere
        self._wake = context.clock.event()
        self._patience = Patience(context.limits, context.clock)
        self._changed = True
        """Whether a watch has rung since the last look."""
        self._published = -1
        self._more = False
        """Whether more is decided than published."""
        self.closed = False

    def close(self) -> None:
        """End the waiting, of this moment and for good. Callable from any thread, and from a signal's handler."""
        self.closed = True
        self._wake.set()

    def latest(self, timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> int:
        """The last published version as far as is known now; asks nobody unless a watch has rung.

        Raises CoordinatorUnavailable if the coordinator does not answer in time, TableDropped, TreeReplaced, ProtocolMismatch.
        """
        if self._changed:
            self._changed = False  # before looking: what changes meanwhile sets it again
            try:
                published, head = self._look(timeout_s)
            except TableMoved as moved:
                self._changed = True
                if self._elsewhere is None:
                    raise
                self._context, self._publish, self._elsewhere = self._elsewhere(moved)
                return self.latest(timeout_s)
            except BaseException:
                self._changed = True
                raise
            self._patience.see(published)
            self._patience.see(head)
            self._published, self._more = published.version, head.version > published.version
        if self._more and self._patience.left_s == 0.0:  # publish what its writer did not
            try:
                # check: who-waits-publishes-for-the-dead (self._publish() -> -1)
                self._published = max(self._published, self._publish())
            except Unavailable as trouble:
                _log.warning("a version of %s is published later: %s", self._context.tree.location, trouble.message)
            self._patience.used()
        return self._published

    def wait(self, after: int, deadline: Deadline | None = None) -> int:
        """The last published version as soon as it is higher than `after`; `after` when closed, or when the deadline passes first.

        At the deadline the answer still includes every version that was acknowledged before the call. While the coordinator is away, it
        waits. Raises TableDropped, TreeReplaced, ProtocolMismatch; CoordinatorUnavailable if it is away at the deadline, or has lost the
        table's nodes.
        """
        self._changed = True  # it looks once, whatever the watches say
        while True:
            self._wake.clear()
            # check: closing-ends-the-waiting
            if self.closed:
                return after
            wait_s: float | None = _PAUSE_S
            try:
                latest = self.latest(_LOOK_S)
            except CoordinatorUnavailable as away:
                _log.warning("waiting for versions of %s: %s", self._context.tree.location, away.message)
            else:
                if latest > after:
                    return latest
                wait_s = self._patience.left_s if self._more else None
            if deadline is not None:
                if deadline.over:
                    with bounding(_LOOK_S, self._context.clock):
                        # check: what-was-acknowledged-arrives-in-time (self._publish() -> after)
                        return max(after, self._publish())
                wait_s = deadline.left_s if wait_s is None else min(wait_s, deadline.left_s)
            self._wake.wait(wait_s)

    def _look(self, timeout_s: Timeout) -> tuple[Published, Head]:
        """The published and the decided state, with watches on both."""
        context = self._context
        with bounding(timeout_s, context.clock):
            published, head = context.read_published(self._ring), context.read_head(self._ring)
        if published is None or head is None:
            raise context.missing_error()
        return published[0], head[0]

    def _ring(self) -> None:
        self._changed = True
        self._wake.set()
