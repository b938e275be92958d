"""Background publication: versions acknowledged as ratified are published before the process ends."""

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

_log = logging.getLogger(__name__)
_EXIT_WAIT_S = 30.0


class Background:
    """Runs publications one after the other; `drain` waits for them, and so does the end of the process.

    It also waits for noted versions that other clients publish. A forked process begins with nothing to do: pending work
    stays with its parent.
    """

    _all: ClassVar[weakref.WeakSet[Background]] = weakref.WeakSet()

    def __init__(self, finish: Callable[[int], object]) -> None:
        """`finish(version)` returns when that version is published, by any client."""
        self._finish = finish
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._executor: ThreadPoolExecutor | None = None
        self._running: set[Future[bool]] = set()
        self._owed = -1
        self._all.add(self)

    def note(self, version: int) -> None:
        """Note a version that was acknowledged as ratified, so that this process owes its publication."""
        with self._lock:
            self._start_again_after_fork()
            self._owed = max(self._owed, version)
        _drain_at_exit()

    def submit(self, publication: Callable[[], object], *, unless_busy: bool = False) -> None:
        """Run a publication in a thread; with `unless_busy` only if the thread is idle.

        After the program's main thread has ended, no pool takes work any more. Other threads may still commit: their
        publications run in the calling thread.
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
        """Wait until everything submitted is done and everything owed is published; False if the time ran out before."""
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
        """Called at the end of the process."""
        for each in list(cls._all):
            each.drain(_EXIT_WAIT_S)


@cache
def _drain_at_exit() -> None:
    """Register with the first work: what is registered later runs earlier, so that the sessions are still open."""
    atexit.register(Background.drain_all)
