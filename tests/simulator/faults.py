"""What goes wrong in a run, and how often: decided by dice for each call of each client.

A fault has a name ("w2.1:117" is call 117 of client w2 after its first restart), so that a run can be repeated with some of
its faults only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from .dice import Dice, weighted

EVERYWHERE: Final = {
    "crash": 2.0,  # the client dies; its session ends later, another takes its place
    "replaced": 1.0,  # taken for dead: another client repeats what it is at, while it goes on with that
    "pause": 3.0,  # all threads of the client stand still (a stopped process, a long collection of garbage)
    "slow": 8.0,  # this call takes long
    "clock": 1.0,  # the wall clock jumps by up to an hour, either way
}
COORDINATION: Final = {
    "request-lost": 4.0,
    "reply-lost": 8.0,
    "expired-before": 2.0,
    "expired-after": 2.0,
    "expired-later": 2.0,  # between two calls
    "lag": 5.0,  # the server of this session is behind for a while
    "cut": 2.0,  # no connection for a while, or until the session is over
}
OBJECTS: Final = {
    "throttled": 6.0,
    "request-lost": 4.0,
    "reply-lost": 6.0,
    "late": 6.0,  # the reply is lost and the write takes effect later (writes only)
}
_HAIL: Final = ("request-lost", "reply-lost", "expired-before", "expired-after", "lag", "late")
"""What happens to many of the writes of some runs."""
_STORMS: Final = (0.005, 0.015, 0.03, 0.06, 0.1)


@dataclass
class Weather:
    """The faults of one run. `only` and `without` name faults to keep or to leave out; `happened` lists those that happened."""

    dice: Dice
    only: Collection[str] | None = None
    without: Collection[str] = ()
    until_s: float = 0.0
    happened: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rate = self.dice.choice(_STORMS, 1, 1) if self.dice.roll(1, 0) > 0.06 else 0.0
        if self.until_s == 0.0:
            self.until_s = 5.0 + 60.0 * self.dice.roll(1, 3)
        self._hail_kind = self.dice.choice(_HAIL, 1, 5) if self.dice.roll(1, 6) < 0.3 else ""
        self._hail_rate = 0.05 + 0.3 * self.dice.roll(1, 7)
        self._tables = {True: self._some(COORDINATION), False: self._some(OBJECTS)}

    def _some(self, kinds: dict[str, float]) -> dict[str, float]:
        """A third of the kinds never happens in a run, so that each meets the others in every combination."""
        chosen = {kind: weight for n, (kind, weight) in enumerate({**EVERYWHERE, **kinds}.items()) if self.dice.roll(1, 4, n) > 0.33}
        return chosen or dict(kinds)

    def strikes(self, name: str, kind: str, chance: float, roll: float, now_s: float) -> bool:
        """Whether a fault of this name happens, outside of calls."""
        if now_s >= self.until_s or roll >= chance or name in self.without or (self.only is not None and name not in self.only):
            return False
        self.happened.append((name, kind))
        return True

    def fault(self, client: str, number: int, call: int, now_s: float, *, coordination: bool, writes: bool) -> str | None:
        """What happens to a call, or None."""
        if now_s >= self.until_s:
            return None
        roll = self.dice.roll(2, number, call)
        hails = writes and self._hail_kind in (COORDINATION if coordination else OBJECTS) and roll > 1.0 - self._hail_rate
        if not hails and roll >= self._rate:
            return None
        name = f"{client}:{call}"
        if name in self.without or (self.only is not None and name not in self.only):
            return None
        kinds = self._tables[coordination]
        kind = self._hail_kind if hails else weighted(kinds, self.dice.roll(3, number, call))
        if kind == "late" and not writes:
            return None
        self.happened.append((name, kind))
        return kind
