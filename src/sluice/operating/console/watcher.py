"""One thread looks at the coordinator, however many browsers watch, and only while one does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from msgspec import json, to_builtins
from msgspec.structs import replace

from ...storage.dataclass import dataclass
from ...storage.times import milliseconds_of
from ..document import Status, Table

EVERY_S: Final = 2.0
"""Seconds between the beginnings of two looks."""
_SHARE: Final = 0.03
"""The share of a core that looks may take: a look that takes long is followed by a longer pause, of five times the usual one at most."""
_FRESH_S: Final = 1.0
_UNTOLD: Final = frozenset({"at", "write_s", "zxid", "what"})
"""What differs in each look, and says nothing new by itself."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """A look: its number among those that showed something new, the document as JSON, and its time by both clocks; or none yet."""

    number: int = 0
    text: bytes = b""
    at: str = ""
    local_s: float = float("-inf")


class Watcher:
    """Looks by `look` while somebody watches. Thread-safe."""

    def __init__(self, look: Callable[[], Status], every_s: float = EVERY_S) -> None:
        self._look = look
        self._every_s = every_s
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._wakers: list[Callable[[], object]] = []
        self.seen = Seen()
        """The last look."""
        self._essence: Any = None
        self.over = False
        """Whether it was closed: who watches ends."""
        self._thread = threading.Thread(target=self._run, name="sluice-console-watcher", daemon=True)
        self._thread.start()

    def now(self) -> Seen:
        """A look that is not older than a second."""
        with self._looking:
            if time.monotonic() - self.seen.local_s > _FRESH_S:
                self._take(self._look())
            return self.seen

    def now_ms(self) -> int:
        """The coordinator's time, by the last look and the time since."""
        seen = self.seen if self.seen.at else self.now()
        return milliseconds_of(seen.at) + round(1000 * (time.monotonic() - seen.local_s))

    @contextmanager
    def watched(self, wake: Callable[[], object]) -> Iterator[None]:
        """In the block it looks, and calls `wake` after each look that showed something new; and when it is closed."""
        with self._changed:
            if not self._wakers:  # the last look may be an hour old
                self._essence, self.seen = None, Seen(self.seen.number)
            self._wakers.append(wake)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._wakers.remove(wake)

    def close(self) -> None:
        """Look no more, and let who watches end."""
        with self._changed:
            self.over = True
            self._changed.notify_all()
        self._wake()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wakers or self.over)
                if self.over:
                    return
            began_s, began_cpu_s, number = time.monotonic(), time.thread_time(), self.seen.number
            try:
                with self._looking:
                    self._take(self._look())
            except Exception:  # noqa: BLE001 - whatever it is, the next look may be better
                _log.exception("the console could not look at the coordinator")
            if self.seen.number != number:
                self._wake()
            pause_s = max(self._every_s, (time.thread_time() - began_cpu_s) / _SHARE)
            self._pause(self.seen, max(0.0, min(5 * self._every_s, pause_s) - (time.monotonic() - began_s)))

    def _pause(self, seen: Seen, seconds: float) -> None:
        """Wait, but not while the first one who watches has seen nothing."""
        with self._changed:
            self._changed.wait_for(lambda: self.over or self.seen is not seen, seconds)

    def _take(self, status: Status) -> None:
        """Remember a look; it has the next number if it shows something new."""
        essence = _essence(to_builtins(replace(status, tables=()))), [_essence_of(each) for each in status.tables]
        number = self.seen.number + (essence != self._essence)
        self._essence, self.seen = essence, Seen(number, json.encode(status), status.at, time.monotonic())

    def _wake(self) -> None:
        with self._changed:
            wakers = list(self._wakers)
        for wake in wakers:
            wake()


@lru_cache(1024)
def _essence_of(table: Table) -> Any:
    return _essence(to_builtins(table))


def _essence(value: Any) -> Any:
    """What of a document is news: times by which something has grown older are, when their first two digits change."""
    if isinstance(value, dict):
        return {key: _essence(each) for key, each in value.items() if key not in _UNTOLD}
    if isinstance(value, (list, tuple)):
        return [_essence(each) for each in value]
    return float(f"{value:.2g}") if isinstance(value, float) else value
