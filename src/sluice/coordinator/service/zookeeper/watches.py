"""The callbacks of one session that wait for a node to change.

The client library keeps a set of callables per node, empties it when the server reports a change or the connection drops,
and forgets it when the client ends. This module adds two things: a callable passed again with every read is held once, and
the end of the session reaches all waiting callbacks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ....storage.dataclass import dataclass

__all__ = ["Bell", "Watch", "Watches"]

Watch = Callable[[], None]

log = logging.getLogger("sluice.zookeeper")


@dataclass(frozen=True)
class Bell:
    """Registered in place of a callback; equal for the same callback on the same node."""

    watches: Watches
    kind: str
    path: str
    watch: Watch

    def __call__(self, event: object) -> None:
        """The library reports a change."""
        if self.watches.answered(self):
            self.ring()

    def ring(self) -> None:
        """Call the callback; its exceptions must not reach the library's threads."""
        try:
            self.watch()
        except Exception:
            log.exception("the watch of %s on %s failed", self.kind, self.path)


class Watches:
    """The bells of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Bell] = set()
        self._over = False

    def add(self, bell: Bell) -> None:
        """Add a waiting bell; adding it twice is harmless."""
        with self._lock:
            self._waiting.add(bell)

    def answered(self, bell: Bell) -> bool:
        """Remove a bell; returns whether to ring it, which is False if `end` already rang it."""
        with self._lock:
            self._waiting.discard(bell)
            return not self._over

    def end(self) -> None:
        """The session is over: ring all waiting bells, once."""
        with self._lock:
            waiting, self._waiting, self._over = list(self._waiting), set(), True
        for bell in waiting:
            bell.ring()
