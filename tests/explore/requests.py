"""What a client asks of the outside, and what it can be told: the alphabet in which clients and services talk.

Everything here is a value: the same request is equal to itself in another run, and an answer has a key by which the client's
later life is told apart from what it does after other answers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sluice.coordinator.service.store import Op
from sluice.storage.errors import SluiceError


@dataclass(frozen=True, slots=True)
class Look:
    """A read of the coordination service: `verb` is read, read_many or children; `event` is what a watch sets."""

    session: int
    verb: str
    paths: tuple[str, ...]
    event: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A request that may change the coordination service, all operations or none."""

    session: int
    verb: str
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A quorum operation that changes nothing."""

    session: int


@dataclass(frozen=True, slots=True)
class Close:
    """The end of a session by its own client."""

    session: int


@dataclass(frozen=True, slots=True)
class ObjectCall:
    """A call of the object store: get, head, list, put, put_if_absent or delete. `start` and `recursive` are a listing's."""

    table: str
    verb: str
    key: str
    data: bytes = b""
    start: str = ""
    recursive: bool = False

    @property
    def writes(self) -> bool:
        """Whether it may change an object."""
        return self.verb in ("put", "put_if_absent", "delete")


@dataclass(frozen=True, slots=True)
class Wait:
    """Waiting for an event (None: for time only), for so many seconds at most (None: for ever)."""

    event: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The client's program is over; `error` is what it ended with when it should not have."""

    error: str = ""


Request: TypeAlias = "Look | Change | Barrier | Close | ObjectCall | Wait | Ended"


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's answer: a value, or an error to raise."""

    value: Any = None
    error: SluiceError | None = None

    @property
    def key(self) -> Hashable:
        """What tells this answer from others."""
        return self.value if self.error is None else _signature(self.error)

    def deliver(self) -> Any:
        """The value; raises a fresh copy of the error, since many lives get the same one."""
        if self.error is not None:
            raise _copied(self.error)
        return self.value


def told(error: SluiceError) -> Answer:
    """The answer that raises this."""
    return Answer(error=error)


def _signature(error: SluiceError) -> Hashable:
    cause = error.details.get("cause")
    return (type(error).__name__, error.message, error.details.get("index"), _signature(cause) if isinstance(cause, SluiceError) else None)


def _copied(error: SluiceError) -> SluiceError:
    details = {name: _copied(value) if isinstance(value, SluiceError) else value for name, value in error.details.items()}
    return type(error)(error.message, **details)
