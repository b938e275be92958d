"""Time as the commit protocol sees it: a wall clock for records, a monotonic one for waiting, and one deadline per call."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Clock", "Deadline", "Event", "SystemClock"]


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
    """The end of one call's time; every wait of the call is measured against the same one."""

    clock: Clock
    at_s: float

    @staticmethod
    def after(seconds: float, clock: Clock) -> Deadline:
        """A deadline `seconds` from now."""
        return Deadline(clock, clock.monotonic_s() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, 0 when over."""
        return max(0.0, self.at_s - self.clock.monotonic_s())

    @property
    def over(self) -> bool:
        """Whether the time ran out."""
        return self.left_s <= 0.0
