"""The faults that a call to the coordinator in memory can meet, and the script of pending ones."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ...storage.dataclass import dataclass
from .store import Op

__all__ = ["Call", "Fault", "Hook", "Script"]


class Fault(Enum):
    """What happens to one call; `memory.py` documents the fault model."""

    REQUEST_LOST = "the request is lost"
    REPLY_LOST = "the reply is lost"
    EXPIRED_BEFORE = "the session expires before the request"
    EXPIRED_AFTER = "the session expires after the request took effect"

    @property
    def takes_effect(self) -> bool:
        """Whether the call's change is made."""
        return self in (Fault.REPLY_LOST, Fault.EXPIRED_AFTER)

    @property
    def expires(self) -> bool:
        """Whether the session ends."""
        return self in (Fault.EXPIRED_BEFORE, Fault.EXPIRED_AFTER)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb, as hooks see it. `number` counts the calls of all sessions from 1; `ops` are its changes."""

    number: int
    session_id: int
    verb: str
    path: str
    ops: tuple[Op, ...] = ()


Hook = Callable[[Call], "Fault | None"]


@dataclass(slots=True)
class _Line:
    fault: Fault
    verb: str | None
    path: str | None
    session_id: int | None
    skip: int

    def matches(self, call: Call) -> bool:
        paths = (call.path, *(op.path for op in call.ops))
        return (
            self.verb in (None, call.verb)
            and self.session_id in (None, call.session_id)
            and (self.path is None or any(self.path in path for path in paths))
        )


class Script:
    """Faults that happen once each, to the first call that matches. Not thread-safe."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []

    def add(self, fault: Fault, *, verb: str | None, path: str | None, session_id: int | None, skip: int) -> None:
        """Add a fault for the call that matches after `skip` matching ones; None matches everything."""
        self._lines.append(_Line(fault, verb, path, session_id, skip))

    def take(self, call: Call) -> Fault | None:
        """Remove and return the fault that this call meets."""
        for line in self._lines:
            if not line.matches(call):
                continue
            if line.skip == 0:
                self._lines.remove(line)
                return line.fault
            line.skip -= 1
        return None
