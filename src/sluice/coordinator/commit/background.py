"""Publication that nobody waits for: what was acknowledged as ratified is published before its process ends."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import ClassVar

from ...storage.errors import SluiceError
from ..service.clock import Deadline, bounding

__all__ = ["Background"]

_log = logging.getLogger(__name__)
_EXIT_WAIT_S = 30.0


class Background:
    """Runs publications one after the other; `drain` sees them done, and so does the end of the process.

    Versions that others publish are seen through too, once they are noted. A process forked from this one begins with
    nothing to do: what is pending stays with its parent.
    """

    _all: ClassVar[weakref.WeakSet[Background]] = weakref.WeakSet()

    def __init__(self, finish: Callable[[int], object]) -> None:
        """`finish(version)` returns when that version is published, by whomever."""
        self._finish = finish
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._executor: ThreadPoolExecutor | None = None
        self._running: set[Future[bool]] = set()
        self._owed = -1
        self._all.add(self)

    def note(self, version: int) -> None:
        """A version was acknowledged as ratified, so this process owes its publication."""
        with self._lock:
            self._start_again_after_fork()
            self._owed = max(self._owed, version)
        _drain_at_exit()

    def submit(self, publication: Callable[[], object], *, unless_busy: bool = False) -> None:
        """Let a thread do a publication; with `unless_busy` only where it has nothing to do yet.

        Once the program's main thread has ended no pool takes work any more. Other threads may go on committing: theirs is done here.
        """
        with self._lock:
            self._start_again_after_fork()
            if unless_busy and self._running:
                return
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="sluice-publish")
            future: Future[bool] | None = None
            with suppress(RuntimeError):
                future = self._executor.submit(self._run, publication)
                self._running.add(future)
        if future is None:
            self._run(publication)
            return
        future.add_done_callback(self._forget)
        _drain_at_exit()

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything submitted is done and everything owed is published; False when that was not to be had."""
        with self._lock:
            self._start_again_after_fork()
            running, owed = set(self._running), self._owed
        limit = Deadline.after(timeout_s)
        done = not wait(running, timeout_s).not_done
        if owed >= 0 and done:
            with bounding(limit, limit.clock):
                done = self._run(lambda: self._finish(owed))
            with self._lock:
                self._owed = -1 if done and self._owed == owed else self._owed
        return done

    def _start_again_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid, self._executor, self._running, self._owed = os.getpid(), None, set(), -1

    def _run(self, publication: Callable[[], object]) -> bool:
        try:
            publication()
        except SluiceError as error:
            _log.warning("a ratified version is not published yet: %s", error)
            return False
        return True

    def _forget(self, future: Future[bool]) -> None:
        with self._lock:
            self._running.discard(future)

    @classmethod
    def drain_all(cls) -> None:
        """What the end of the process calls."""
        for each in list(cls._all):
            each.drain(_EXIT_WAIT_S)


@cache
def _drain_at_exit() -> None:
    """Registered with the first thing there is to do: what is registered later runs earlier, so the sessions still stand."""
    atexit.register(Background.drain_all)
