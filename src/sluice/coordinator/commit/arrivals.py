"""Waiting for published versions, by watches on two nodes: whoever waits asks nobody while nothing happens.

`published` says which versions every engine reads, `head` that more are decided. Their writers publish them; if one does not
within a patience, whoever waits does, so that a dead writer's last version arrives, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...storage.errors import Unavailable
from ..errors import CoordinatorUnavailable
from ..nodes.context import TableContext
from ..nodes.records import Head, Published
from ..service.clock import Deadline, bounding
from .patience import Patience

__all__ = ["Arrivals"]

_log = logging.getLogger(__name__)

_LOOK_S: Final = 5.0
"""How long one look waits for the coordinator, so that `close` ends the waiting soon."""
_PAUSE_S: Final = 0.5
"""The time between two looks while the coordinator is away."""


class Arrivals:
    """Waits until versions of one table are published. One thread waits at a time; any may `close`."""

    def __init__(self, context: TableContext, publish: Callable[[], int]) -> None:
        """`publish` publishes what is ratified, including everything acknowledged before the call, and returns the last version."""
        self._context = context
        self._publish = publish
        self._wake = context.clock.event()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """End the waiting, of this moment and for good. Callable from any thread, and from a signal's handler."""
        self._closed = True
        self._wake.set()

    def wait(self, after: int, deadline: Deadline | None = None) -> int:
        """The last published version as soon as it is higher than `after`; `after` when closed, or when the deadline passes first.

        A deadline does not pass over what was acknowledged to anybody before. While the coordinator is away, the call waits for
        its return. Raises TableDropped, TreeReplaced, ProtocolMismatch; CoordinatorUnavailable when the deadline passes while the
        coordinator is away, or has lost the table's nodes.
        """
        patience = Patience(self._context.limits, self._context.clock)
        while True:
            self._wake.clear()
            # check: closing-ends-the-waiting
            if self._closed:
                return after
            state = self._look()
            wait_s: float | None = _PAUSE_S
            if state is not None:
                published, head = state
                if published.version > after:
                    return published.version
                patience.see(published)
                patience.see(head)
                wait_s = patience.left_s if head.version > published.version else None
                if wait_s == 0.0:
                    self._help()
                    patience.used()
                    continue
            if deadline is not None:
                if deadline.over:
                    with bounding(_LOOK_S, self._context.clock):
                        # check: what-was-acknowledged-arrives-in-time (self._publish() -> after)
                        return max(after, self._publish())
                wait_s = deadline.left_s if wait_s is None else min(wait_s, deadline.left_s)
            self._wake.wait(wait_s)

    def _look(self) -> tuple[Published, Head] | None:
        """What is published and what is decided, with watches on both; None while the coordinator is away."""
        context = self._context
        try:
            with bounding(_LOOK_S, context.clock):
                published, head = context.read_published(self._wake.set), context.read_head(self._wake.set)
        except CoordinatorUnavailable as away:
            _log.warning("waiting for versions of %s: %s", context.tree.location, away.message)
            return None
        if published is None or head is None:
            raise context.vanished()
        return published[0], head[0]

    def _help(self) -> None:
        """Publish what its writer did not."""
        try:
            # check: who-waits-publishes-for-the-dead
            self._publish()
        except Unavailable as trouble:
            _log.warning("a version of %s is published later: %s", self._context.tree.location, trouble.message)
