"""What happened in one simulated run, as seen from outside: calls and their answers, what the services stored, and when.

The model judges by nothing else. Nothing here knows sluice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .operations import Operation, State

__all__ = ["Answer", "Call", "History", "LeaseTold", "Read", "Stored"]


@dataclass(frozen=True)
class Answer:
    """How a call ended: `kind` is committed, nothing, refused, failed (certainly not committed), unknown, crashed or read.

    `reason` is the error's class and text. `version` and `ordinal` are the place of a commit; -1 where there is none.
    """

    kind: str
    version: int = -1
    ordinal: int = -1
    transaction_id: str = ""
    repeated: bool = False
    published: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Read:
    """What a read showed."""

    level: str
    version: int
    rows: State


@dataclass
class Call:
    """One attempt of a client at one operation; `began` and `ended` are times, and `filed` the GUIDs it got decided on.

    Times are ticks of one counter of everything that happens, so that before and after are never in doubt; `_s` are virtual seconds.
    """

    client: str
    operation: Operation
    began: int
    table: str = ""
    """The table object it was made on: what the level "session" speaks of."""
    ended: int | None = None
    filed: list[str] = field(default_factory=list)
    began_s: float = 0.0
    ended_s: float = 0.0
    timeout_s: float = 0.0
    answer: Answer | None = None
    read: Read | None = None

    def __str__(self) -> str:
        told = (
            "no answer" if self.answer is None else f"{self.answer.kind} {self.answer.reason or (self.answer.version, self.answer.ordinal)}"
        )
        return f"{self.client} {self.operation} -> {told}"


@dataclass(frozen=True)
class Stored:
    """A change of the object store: `content` is None where the object was deleted."""

    tick: int
    key: str
    content: bytes | None
    by: str


@dataclass
class LeaseTold:
    """A request for a lease: when it was granted and when its node went, None where that never happened."""

    path: str
    mode: str
    granted: int | None = None
    gone: int | None = None


@dataclass
class History:
    """One run."""

    calls: list[Call] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    slots: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Path of each slot that was ever created -> (tick, generation, sequence)."""
    slot_of: dict[str, list[str]] = field(default_factory=dict)
    """GUID -> the paths of its slots."""
    owners: dict[str, tuple[str, int]] = field(default_factory=dict)
    """GUID -> the client, and the number of its operation, that filed it first."""
    direct: dict[str, int] = field(default_factory=dict)
    """GUID of each transaction that was ratified without a slot -> tick."""
    verdicts: list[tuple[int, int, int, str, object]] = field(default_factory=list)
    """Every verdict that was recorded: tick, generation, slot, GUID, and the refusal or None."""
    leases: list[LeaseTold] = field(default_factory=list)
    """Every request for a lease on the table."""
    depends: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """GUID -> the paths of the leases that its intent depends on."""
    heads: list[tuple[int, Mapping[str, object]]] = field(default_factory=list)
    """Every value of the head that was stored."""
    published: list[tuple[int, Mapping[str, object]]] = field(default_factory=list)
    outcomes: dict[str, Answer] = field(default_factory=dict)
    """What the service said of each GUID in the end."""
    trouble: list[str] = field(default_factory=list)
    """Violations that were seen while it ran."""
    tick: int = 0
    healed_s: float = 0.0
    """The virtual time of the last fault."""

    def lease(self, path: str) -> LeaseTold:
        """The request with this node."""
        return next(each for each in self.leases if each.path == path)

    def leases_at(self, tick: int) -> dict[str, LeaseTold]:
        """The leases that were held at a time."""
        return {
            each.path: each
            for each in self.leases
            if each.granted is not None and each.granted < tick and (each.gone is None or each.gone > tick)
        }

    def next_tick(self) -> int:
        """The time of the next thing that happens."""
        self.tick += 1
        return self.tick
