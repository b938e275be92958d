"""What threads share: caches bounded by bytes, values made once, a lock that is free in a child after a fork; and pools of threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, wraps
from operator import itemgetter
from typing import Any, ClassVar, Final, Generic, TypeVar, cast
from weakref import WeakSet

from cachetools import LRUCache

from .progress import followed

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")

_BYTES_PER_CHARACTER: Final = 100
"""The memory that a parsed text takes, about."""


class ForkSafeLock:
    """Like `threading.Lock` (`RLock` if reentrant), but free in a fork, which lacks the thread that held it, and in a pickled copy."""

    _all: ClassVar[WeakSet[ForkSafeLock]] = WeakSet()

    def __init__(self, *, reentrant: bool = False) -> None:
        self._reentrant = reentrant
        self._make()
        self._all.add(self)

    def _make(self) -> None:
        self._lock = threading.RLock() if self._reentrant else threading.Lock()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take the lock; returns False if it is taken and `blocking` is false."""
        return self._lock.acquire(blocking=blocking)

    def release(self, *_: object) -> None:
        """Release the lock; any thread may, unless it is reentrant."""
        self._lock.release()

    __enter__, __exit__ = acquire, release

    def __reduce__(self) -> tuple[Callable[[], ForkSafeLock], tuple[()]]:
        return partial(ForkSafeLock, reentrant=self._reentrant), ()

    @classmethod
    def _free_all(cls) -> None:
        for each in list(cls._all):
            each._make()


os.register_at_fork(after_in_child=ForkSafeLock._free_all)


class Once(Generic[V]):
    """A value that is made on first use; other threads wait for it meanwhile. `made` is the value, None before.

    If making it fails, the next use tries again. What it was made from is let go.
    """

    def __init__(self, make: Callable[[], V]) -> None:
        self._make: Callable[[], V] | None = make
        self._lock = ForkSafeLock()
        self.made: V | None = None

    @property
    def value(self) -> V:
        """The value. Raises the errors of making it."""
        with self._lock:
            if self._make is not None:
                self.made, self._make = self._make(), None
            return cast(V, self.made)


class LazyProperty(Generic[V]):
    """A property that is computed on first use and kept in its object, without a lock: two threads may both compute it.

    `functools.cached_property` is like that since Python 3.12. Before, all objects of a class share a lock: one waits for what another one
    reads from a store, and a process that is forked meanwhile waits for ever.
    """

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type) -> V:
        if instance is None:
            return cast(V, self)  # documentation and the like look at the class
        value = instance.__dict__[self._compute.__name__] = self._compute(instance)
        return value


class BytesBounded(Generic[K, V]):
    """An LRU cache of up to `bytes_max` bytes, thread-safe. The caller gives each value's size; one that is larger is not kept."""

    _ENTRY_BYTES = 256

    def __init__(self, bytes_max: int) -> None:
        self._values: LRUCache[K, tuple[V, int]] = LRUCache(bytes_max, getsizeof=itemgetter(1))
        self._lock = ForkSafeLock()

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            return None if found is None else found[0]

    def __contains__(self, key: K) -> bool:
        with self._lock:
            return key in self._values

    def keep(self, key: K, value: V, size: int) -> None:
        """Keep a value of this size, replacing the key's former one; the least recently used values go."""
        size += self._ENTRY_BYTES
        with self._lock:
            self._values.pop(key, None)
            if size <= self._values.maxsize:
                self._values[key] = value, size


def cached_by_size(bytes_max: int) -> Callable[[F], F]:
    """Cache a function of hashable positional arguments; a result counts by the length of the texts in the arguments."""

    def decorated(function: F) -> F:
        results: BytesBounded[tuple[Any, ...], tuple[Any]] = BytesBounded(bytes_max)

        @wraps(function)
        def cached(*arguments: Any) -> Any:
            found = results.get(arguments)
            if found is None:
                found = (function(*arguments),)
                results.keep(arguments, found, _BYTES_PER_CHARACTER * _characters(arguments))
            return found[0]

        return cast(F, cached)

    return decorated


def _characters(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    return sum(map(_characters, value)) if isinstance(value, tuple) else 0


@contextmanager
def threads(most: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """A pool of at most so many threads, whose names begin with `name`. For generators: a block that does not end waits for nobody.

    The garbage collector ends a generator that was given up, in any thread, in the midst of what that thread does. It may hold a lock of
    `threading` that another thread needs to begin or to end, so that waiting for that one takes for ever. What has not begun is
    cancelled; what runs goes on.
    """
    pool = ThreadPoolExecutor(most, name)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def at_once(do: Callable[[T], R], items: Sequence[T], most: int, name: str, what: str = "") -> list[R]:
    """The results of `do` for each item, in order; at most so many run at once. `what` tells of progress: "files copied"."""
    if len(items) <= 1:
        return [do(each) for each in items]
    with ThreadPoolExecutor(min(most, len(items)), name) as pool:
        results = pool.map(do, items)
        return list(followed(results, len(items), what) if what else results)
