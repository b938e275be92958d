"""How far a long call got: told to whoever listens in this context, and logged every ten seconds if nobody does.

The loops that take long in a large table say what they count: `followed` goes around them, and `caches.at_once` with a text does the same.
A listener hears of every item. So it must be quick, and it must not raise: the call would fail.

::

    with told_to(lambda done, total, what: print(f"{done} of {total} {what}")):
        table.vacuum()

prints "1 of 734 files deleted", and so on. Whoever starts the call decides who hears of it: results of threads are counted in the
thread that waits for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Told: TypeAlias = Callable[[int, int, str], object]
"""Called with how many are done, of how many, and what they are: "files deleted"."""

EVERY_S: Final = 10.0
"""Seconds between two lines in the log."""

_listener: ContextVar[Told | None] = ContextVar("sluice-progress", default=None)
_log = logging.getLogger(__name__)


@contextmanager
def told_to(listener: Told) -> Iterator[None]:
    """In the block, long calls of this context tell `listener` how far they are."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def followed(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """The items; each counts as done when the next one is taken."""
    listener, last_s = _listener.get(), time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        if listener is not None:
            listener(done, total, what)
        elif time.monotonic() - last_s >= EVERY_S:
            last_s = time.monotonic()
            _log.info("%s of %s %s", f"{done:,}", f"{total:,}", what)
