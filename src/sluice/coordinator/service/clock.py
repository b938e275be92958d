"""Time as the commit protocol sees it: a wall clock for records, a monotonic one for waiting, and one deadline per call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias, TypeVar

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ..errors import CoordinatorUnavailable

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "Clock",
    "Deadline",
    "Event",
    "InParts",
    "SystemClock",
    "Timeout",
    "bounded_s",
    "bounding",
    "require_time_left",
    "within_this_call",
]

_A = TypeVar("_A")
_B = TypeVar("_B")

_GRACE_S: Final = 0.3
"""What the requests of a call may take together when its time is over: to let go of something, say, or to be sent at all."""
_LEAST_S: Final = 0.01
"""What one request may take even then."""


class Event(Protocol):
    """Something to wait for that another thread sets, such as a watch; `threading.Event` is one."""

    def set(self) -> None:
        """Let whoever waits go on."""
        ...

    def clear(self) -> None:
        """Let the next `wait` wait again."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for at most `timeout` seconds; whether it is set."""
        ...


class Clock(Protocol):
    """Wall time in milliseconds since the epoch, and monotonic seconds; never used to decide a conflict.

    All waiting of the commit protocol goes through its clock, so that a simulated one decides how long it takes.
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def event(self) -> Event:
        """Something to wait for by this clock."""
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
        """Something to wait for by this clock."""
        return threading.Event()


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of one call's time, or of several calls' together; every wait is measured against the same one.

    Wherever a timeout is taken a deadline may be given: `sluice.Deadline.after(60)`.
    """

    clock: Clock
    at_s: float

    @staticmethod
    def after(seconds: float, clock: Clock | None = None) -> Deadline:
        """A deadline `seconds` from now. Raises InvalidRequest for what is no time."""
        if type(seconds) not in (int, float) or not seconds >= 0:
            raise InvalidRequest(f"timeout_s is {seconds!r}; give seconds, 0 or more, or a sluice.Deadline", timeout_s=seconds)
        clock = clock or SystemClock()
        return Deadline(clock, clock.monotonic_s() + seconds)

    @staticmethod
    def of(limit: Timeout, clock: Clock) -> Deadline:
        """The deadline that is given, or one after so many seconds from now. Raises InvalidRequest."""
        return limit if isinstance(limit, Deadline) else Deadline.after(limit, clock)

    @property
    def left_s(self) -> float:
        """Seconds left, 0 when over."""
        return max(0.0, self.at_s - self.clock.monotonic_s())

    @property
    def over(self) -> bool:
        """Whether the time ran out."""
        return self.left_s <= 0.0


Timeout: TypeAlias = "float | Deadline"
"""How long a call may take: seconds from the call on, or a deadline that it may share with others."""

_present: ContextVar[Deadline | None] = ContextVar("sluice_deadline", default=None)

DEFAULT_TIMEOUT_S: Final = 120.0
"""What a commit may take where the caller does not say, in seconds."""


@contextmanager
def bounding(limit: Timeout, clock: Clock) -> Iterator[Deadline]:
    """Let no request that this thread makes in the block wait for a connection for longer than that; gives the deadline."""
    deadline, outer = Deadline.of(limit, clock), _present.get()
    token = _present.set(deadline if outer is None or deadline.left_s < outer.left_s else outer)
    try:
        yield deadline
    finally:
        _present.reset(token)


class InParts:
    """The time of a call that waits in several parts, with work between them that does not count: rows that are written, say."""

    def __init__(self, limit: Timeout, clock: Clock) -> None:
        """Raises InvalidRequest for what is no time."""
        self._clock = clock
        self.left: Timeout = limit if isinstance(limit, Deadline) else Deadline.after(limit, clock).left_s
        """What is left for the parts that come, or the deadline that was given."""

    @contextmanager
    def part(self) -> Iterator[Deadline]:
        """Bound what is asked in the block; its time is taken from what is left."""
        with bounding(self.left, self._clock) as deadline:
            try:
                yield deadline
            finally:
                self.left = self.left if isinstance(self.left, Deadline) else deadline.left_s


def bounded_s(longest_s: float) -> float:
    """How long one request may wait: `longest_s`, or what is left of its call's time when that is less, and of a moment beyond."""
    deadline = _present.get()
    if deadline is None:
        return longest_s
    return min(longest_s, max(deadline.at_s + _GRACE_S - deadline.clock.monotonic_s(), _LEAST_S))


def require_time_left(what: str) -> None:
    """Raise CoordinatorUnavailable when the time of this thread's call is over: for what is done again while sessions end in between."""
    deadline = _present.get()
    if deadline is not None and deadline.over:
        raise CoordinatorUnavailable(f"{what} in the time given: sessions with the coordinator ended while it was asked; ask again")


def within_this_call(act: Callable[[_A], _B]) -> Callable[[_A], _B]:
    """`act` for other threads, bounded there as it would be in this one."""
    deadline = _present.get()

    def run(argument: _A) -> _B:
        token = _present.set(deadline)
        try:
            return act(argument)
        finally:
            _present.reset(token)

    return run
