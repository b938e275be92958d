"""Patience: how long a client waits for others before it does their work."""

from __future__ import annotations

from ..limits import Limits
from ..nodes.records import Head, Published
from ..service.clock import Clock

__all__ = ["Patience"]


class Patience:
    """How long to wait for others; doubles each time it was used up, and starts again when something moved."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._length_s = limits.patience_s
        self._since_s = clock.monotonic_s()
        self._seen: dict[type, object] = {}

    def see(self, state: Head | Published) -> None:
        """Note the current state; patience starts again if it moved."""
        before = self._seen.setdefault(type(state), state)
        if state != before:
            self._seen[type(state)] = state
            self._since_s, self._length_s = self._clock.monotonic_s(), self._limits.patience_s

    @property
    def left_s(self) -> float:
        """Seconds until it ends."""
        # check: patience-ends (0.0 -> 1.0)
        return max(0.0, self._since_s + self._length_s - self._clock.monotonic_s())

    def used(self) -> None:
        """Another client's work was done (or tried) because patience was over."""
        self._since_s = self._clock.monotonic_s()
        self._length_s = min(self._length_s * 2, self._limits.patience_s_max)
