"""Time in the commit protocol: a wall clock for records, a monotonic clock for waiting, one deadline per call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias, TypeVar

from ...storage.arguments import RULES
from ...storage.dataclass import dataclass
from ..errors import CoordinatorUnavailable

_A = TypeVar("_A")
_B = TypeVar("_B")

_GRACE_S: Final = 0.3
"""Extra time for all requests of a call whose time is over: to release something, say, or to be sent at all."""
_LEAST_S: Final = 0.01
"""The least time one request gets, even then."""


class Event(Protocol):
    """Something that another thread sets and this one waits for, such as a watch; `threading.Event` is one."""

    def set(self) -> None:
        """Wake the waiting threads."""

    def clear(self) -> None:
        """Make the next `wait` block again."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for at most `timeout` seconds; returns whether it is set."""
        ...


class Clock(Protocol):
    """Wall time in milliseconds since the epoch, and monotonic seconds; never used to decide a conflict.

    The commit protocol waits only through its clock, so a simulated clock decides how long waiting takes.
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def event(self) -> Event:
        """An event that waits by this clock."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def event(self) -> Event:
        """An event that waits by this clock."""
        return threading.Event()


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the time for one call or several; every wait is measured against the same deadline.

    A deadline may be passed instead of any timeout: `sluice.Deadline.after(60)`.
    """

    clock: Clock
    at_s: float

    @staticmethod
    def after(seconds: float, clock: Clock | None = None, *, name: str = "timeout_s") -> Deadline:
        """A deadline `seconds` from now. Raises InvalidRequest for an invalid time, which it calls `name`."""
        RULES["seconds"].check(name, seconds)
        clock = clock or SystemClock()
        return Deadline(clock, clock.monotonic_s() + seconds)

    @staticmethod
    def of(limit: Timeout, clock: Clock | None = None, *, name: str = "timeout_s") -> Deadline:
        """The given deadline, or one so many seconds from now. Raises InvalidRequest for an invalid time, which it calls `name`."""
        return limit if isinstance(limit, Deadline) else Deadline.after(limit, clock, name=name)

    @property
    def left_s(self) -> float:
        """Seconds left; 0 if it is over."""
        return max(0.0, self.at_s - self.clock.monotonic_s())

    @property
    def over(self) -> bool:
        """Whether the time ran out."""
        return self.left_s <= 0.0

    def rest_of(self, limit: Timeout) -> Timeout:
        """What is left of the `limit` that this deadline is of: for work after which a call goes on, and which does not count."""
        return limit if isinstance(limit, Deadline) else self.left_s


Timeout: TypeAlias = "float | Deadline"
"""How long a call may take: seconds from the start of the call, or a deadline that calls may share."""

_present: ContextVar[Deadline | None] = ContextVar("sluice_deadline", default=None)


@contextmanager
def bounding(limit: Timeout, clock: Clock | None = None) -> Iterator[Deadline]:
    """Limit how long this thread's requests in the block wait for a connection. Yields the deadline, an outer block's if earlier."""
    deadline, outer = Deadline.of(limit, clock), _present.get()
    token = _present.set(deadline if outer is None or deadline.left_s < outer.left_s else outer)
    try:
        # check: a-call-within-a-call-ends-with-it (_present.get() or deadline -> deadline)
        yield _present.get() or deadline
    finally:
        _present.reset(token)


def bounded_s(longest_s: float) -> float:
    """How long one request may wait: `longest_s`, or less if its call's time (plus a moment of grace) ends earlier."""
    deadline = _present.get()
    left_s = longest_s if deadline is None else deadline.at_s + _GRACE_S - deadline.clock.monotonic_s()
    return min(longest_s, max(left_s, _LEAST_S))


def require_time_left(what: str) -> None:
    """Raise CoordinatorUnavailable if the time of this thread's call is over; for work that is repeated when sessions end."""
    deadline = _present.get()
    if deadline is not None and deadline.over:
        raise CoordinatorUnavailable(f"{what} in the time given; repeat it")


def within_this_call(act: Callable[[_A], _B]) -> Callable[[_A], _B]:
    """Wrap `act` for other threads: it has the same deadline there as in this thread."""
    deadline = _present.get()

    def run(argument: _A) -> _B:
        token = _present.set(deadline)
        try:
            return act(argument)
        finally:
            _present.reset(token)

    return run
