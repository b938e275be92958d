"""Several things at once, in threads that nobody waits for in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


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


def at_once(do: Callable[[T], R], items: Sequence[T], most: int, name: str) -> list[R]:
    """The results of `do` for each item, in order; at most so many run at once."""
    if len(items) <= 1:
        return [do(each) for each in items]
    with ThreadPoolExecutor(min(most, len(items)), name) as pool:
        return list(pool.map(do, items))
