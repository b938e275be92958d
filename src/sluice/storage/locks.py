"""A lock that survives a fork: it is free in a child process, even if a thread of the parent held it."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import ClassVar
from weakref import WeakSet

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """Like `threading.Lock`, but free in a forked process, and in a copy made by pickling."""

    _all: ClassVar[WeakSet[ForkSafeLock]] = WeakSet()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all.add(self)

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock; returns False if it is taken and `blocking` is false."""
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        """Release the lock; any thread may."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[ForkSafeLock], tuple[()]]:
        return ForkSafeLock, ()

    @classmethod
    def _free_all(cls) -> None:
        for each in list(cls._all):
            each._lock = threading.Lock()


os.register_at_fork(after_in_child=ForkSafeLock._free_all)
