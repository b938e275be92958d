"""Background publication: versions acknowledged as ratified are published before the process ends."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import ClassVar, Final

from ...storage.caches import ForkSafeLock
from ...storage.errors import SluiceError
from ..service.clock import Deadline, bounding

_log = logging.getLogger(__name__)
_EXIT_WAIT_S = 30.0
_THREADS_MAX: Final = 32
"""For all tables of the process. A table whose store does not answer keeps one of them waiting, so there are more than cores."""


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads of this process, which start when there is work for them."""
    return ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="sluice-publish")


class Background:
    """Runs the publications of one table one after the other, in a thread of the process's pool.

    `drain` waits for them, and for noted versions that other clients publish; so does the end of the process. A forked process begins with
    nothing to do: pending work stays with its parent.
    """

    _all: ClassVar[weakref.WeakSet[Background]] = weakref.WeakSet()

    def __init__(self, finish: Callable[[int], object]) -> None:
        """`finish(version)` returns when that version is published, by any client."""
        self._finish = finish
        self._lock = ForkSafeLock()
        self._begin()
        self._all.add(self)

    def _begin(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._running: Future[None] | None = None
        """The thread that works; None while nothing waits."""
        self._owed = -1

    def note(self, version: int) -> None:
        """Note a version that was acknowledged as ratified, so that this process owes its publication."""
        with self._lock:
            self._owed = max(self._owed, version)
        _drain_at_exit()

    def submit(self, publication: Callable[[], object], *, unless_busy: bool = False) -> None:
        """Run a publication in a thread; with `unless_busy` only if no other one waits or runs.

        After the program's main thread has ended, no pool takes work any more: those of other threads run in the calling thread.
        """
        with self._lock:
            if self._running is None:
                with suppress(RuntimeError):
                    self._running = _pool().submit(self._work)
            elif unless_busy:
                return
            in_pool = self._running is not None
            if in_pool:
                self._waiting.append(publication)
        if in_pool:
            _drain_at_exit()
        else:
            self._run(publication)

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything submitted is done and everything owed is published; False if the time ran out before."""
        with self._lock:
            running, owed = self._running, self._owed
        limit = Deadline.after(timeout_s)
        done = running is None or not wait([running], timeout_s).not_done
        if owed >= 0 and done:
            with bounding(limit, limit.clock):
                done = self._run(lambda: self._finish(owed))
            with self._lock:
                self._owed = -1 if done and self._owed == owed else self._owed
        return done

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = None
                    return
                publication = self._waiting.popleft()
            try:
                self._run(publication)
            except Exception:  # noqa: BLE001 - the next publications are not to blame
                _log.exception("a publication in the background failed")

    def _run(self, publication: Callable[[], object]) -> bool:
        try:
            publication()
        except SluiceError as error:
            _log.warning("a ratified version is not published yet: %s", error)
            return False
        return True

    @classmethod
    def drain_all(cls) -> None:
        """Called at the end of the process."""
        for each in list(cls._all):
            each.drain(_EXIT_WAIT_S)

    @classmethod
    def _begin_again(cls) -> None:
        """In a forked process, where the threads do not exist that did the work. Its locks are free (`ForkSafeLock`)."""
        _pool.cache_clear()
        for each in list(cls._all):
            each._begin()


os.register_at_fork(after_in_child=Background._begin_again)


@cache
def _drain_at_exit() -> None:
    """Register with the first work: what is registered later runs earlier, so that the sessions are still open."""
    atexit.register(Background.drain_all)
