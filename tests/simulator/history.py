"""What happened in one simulated run, as seen from outside: calls and their answers, what the services stored, and when.

The model judges by nothing else. Nothing here knows sluice. Times are ticks of one counter of everything that happens, so that
before and after are never in doubt; all that one request of the coordinator changed has one tick. `_s` are virtual seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .model_operations import Operation, State

LOST = ("NotATable", "WrongCoordinator", "TreeReplaced")
"""The errors that tell a client that the coordinator's data were lost."""
MOVED = "TableMoved"
"""The one that tells it that the table went to another coordinator."""
NOT_OF_A_CALL = ("CREATE TABLE", "ATTACH", "DETACH", "RECOVER", "VACUUM START", "VACUUM END", "RAISE IDENTITY")
"""What is committed beside what a call is about."""
_NOT_IN_THE_LOG = ("refused", "failed", "nothing", "error")


@dataclass(frozen=True)
class Told:
    """The place of a commit in a table, as a client was told it."""

    version: int
    ordinal: int
    published: bool = False


@dataclass(frozen=True)
class Answer:
    """How a call ended: `kind` is committed, nothing, refused, failed (certainly not committed), unknown, crashed, read, done or error.

    `reason` is the error's class and text. `commits` are the places of a commit by the table's number.
    """

    kind: str
    commits: Mapping[int, Told] = field(default_factory=dict)
    transaction_id: str = ""
    repeated: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Read:
    table: int
    level: str
    version: int
    rows: State


@dataclass(eq=False)
class Call:
    """One attempt of a client at one operation; `began` and `ended` are times, and `filed` the GUIDs it got decided on."""

    client: str
    operation: Operation
    began: int
    life: int = 0
    """Which incarnation of the client made it."""
    through: dict[int, str] = field(default_factory=dict)
    """The table objects it was made on, by the table's number: what the level "session" speaks of."""
    ended: int | None = None
    filed: list[str] = field(default_factory=list)
    began_s: float = 0.0
    ended_s: float = 0.0
    timeout_s: float = 0.0
    answer: Answer | None = None
    reads: list[Read] = field(default_factory=list)
    read_versions: dict[int, int] = field(default_factory=dict)
    """Of a transaction over several tables: the versions that its operations saw."""
    has_turn: bool = False
    """Whether others let it go first, by a lease on what it reads."""
    scans: list[State] = field(default_factory=list)
    """What its steps that read were shown, in their order."""

    def says_no(self, *, lost: bool) -> bool:
        """Whether its answer says that what it filed is certainly not in the log; `lost`: whether the coordinator's data were."""
        answer = self.answer
        if answer is None or answer.kind not in _NOT_IN_THE_LOG:
            return False
        if answer.kind == "error" and answer.reason.startswith(LOST if lost else MOVED):
            return False  # whoever hears that the table is lost, or elsewhere, hears nothing of what was filed
        if answer.kind == "error" and lost:
            return True
        # an earlier or later attempt may have committed the same plan
        return self.operation.kind != "plan" or (answer.kind == "refused" and not answer.reason.startswith("LeaseHeld"))

    def __str__(self) -> str:
        if self.answer is None:
            told = "no answer"
        else:
            places = {table: (told.version, told.ordinal) for table, told in self.answer.commits.items()}
            told = f"{self.answer.kind} {self.answer.reason or places or [read.version for read in self.reads] or ''}".rstrip()
        return f"{self.client} {self.operation} -> {told}"


@dataclass(frozen=True)
class Stored:
    """A change of the object store: `content` is None where the object was deleted. `during` is the call that asked for it."""

    tick: int
    key: str
    content: bytes | None
    by: str
    during: Call | None = None
    knows: int = 1
    """The highest rendering that the client knows."""


@dataclass
class SlotTold:
    """A slot: when it was made and when it was removed."""

    tick: int
    sequence: int
    guid: str
    gone: int | None = None

    def stood(self, tick: int) -> bool:
        """Whether it was there at a time."""
        return self.tick < tick and (self.gone is None or self.gone >= tick)


@dataclass
class PinTold:
    """A pin on a version: when its node was made and went, and when its owner was told that it stands."""

    version: int
    made: int
    acknowledged: int | None = None
    gone: int | None = None
    nodes: int = 0
    """How many coordinators have it: it comes to the next one before it goes at the last."""

    def leave(self, tick: int) -> None:
        """Note that one of its nodes went."""
        self.nodes -= 1
        self.gone = self.gone if self.nodes else tick

    def stood(self, tick: int) -> bool:
        """Whether it was there at a time, and its owner knew."""
        return self.acknowledged is not None and self.acknowledged < tick and (self.gone is None or self.gone >= tick)


@dataclass
class PresenceTold:
    """A node that owns transactions: a client's presence, or a plan's node. It may go and come back."""

    made: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def stood(self, tick: int) -> bool:
        """Whether it was there at a time."""
        return sum(at < tick for at in self.made) > sum(at < tick for at in self.gone)


@dataclass(frozen=True)
class Verdict:
    """A verdict as it was recorded. `refusal` is None where it says committed; `repeats` where it says that it was before."""

    tick: int
    generation: int
    slot: int
    guid: str
    refusal: object
    version: int
    ordinal: int
    repeats: bool


@dataclass(frozen=True)
class Ratified:
    """A version as it was recorded: the engine of the client whose request recorded it, and the number of its rendering."""

    tick: int
    version: int
    engine: str
    rendering: int


@dataclass
class TableHistory:
    number: int
    location: str
    stored: list[Stored] = field(default_factory=list)
    ratified: list[Ratified] = field(default_factory=list)
    slots: dict[str, SlotTold] = field(default_factory=dict)
    """Every slot that was ever created, by its path."""
    slot_of: dict[str, list[str]] = field(default_factory=dict)
    """GUID -> the paths of its slots."""
    intents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """GUID -> what was filed last under it."""
    direct: dict[str, int] = field(default_factory=dict)
    """GUID of each transaction that was ratified without a slot -> tick."""
    verdicts: list[Verdict] = field(default_factory=list)
    pins: dict[str, PinTold] = field(default_factory=dict)
    heads: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    """Every value of the head that was stored."""
    published: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    outcomes: dict[str, Answer] = field(default_factory=dict)
    """What the service said of each GUID in the end."""
    moves: dict[str, int] = field(default_factory=dict)
    """When it left for another coordinator, by the id of each move -> tick."""
    left: frozenset[str] | None = None
    """The objects that were there when the last garbage had been collected; None where it was not."""

    def leave(self, tick: int, move: Mapping[str, Any] | None) -> None:
        """Note that it left for another coordinator, where it goes on from the head that the move names."""
        if move is not None and move["id"] not in self.moves:
            self.moves[move["id"]] = tick
            self.heads.append((tick, move["head"]))

    def head_at(self, tick: int) -> int:
        """The version the head said last at a time; -1 before the first."""
        return next((int(value["version"]) for at, value in reversed(self.heads) if at <= tick), -1)

    def may_commit(self, guid: str) -> bool:
        """Whether a transaction was committed here, or filed, so that it would be decided."""
        granted = any(verdict.guid == guid and verdict.refusal is None for verdict in self.verdicts)
        return granted or guid in self.slot_of


@dataclass
class History:
    tables: list[TableHistory] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    owners: dict[str, tuple[str, int]] = field(default_factory=dict)
    """GUID -> the client, and the number of its operation, that filed it first."""
    present: dict[str, PresenceTold] = field(default_factory=dict)
    """Clients and plans, by the names of their nodes."""
    graves: dict[str, int] = field(default_factory=dict)
    """The clients that were declared gone for good -> tick."""
    lost_at: int | None = None
    """When all data of the coordinator were lost, if they were."""
    recovered: set[int] = field(default_factory=set)
    """The tables whose nodes were rebuilt since."""
    incomplete: dict[str, Mapping[str, int]] | None = None
    """GUID -> what the service told to be missing of transactions over several tables, by location; None where it was not asked."""
    trouble: list[str] = field(default_factory=list)
    """Violations that were seen while it ran."""
    healed_s: float = 0.0
    """The virtual time of the last fault."""
    clock: Callable[[], float] = lambda: 0.0
    times: list[float] = field(default_factory=list)
    """The virtual time of each tick, the first one's first."""

    def at(self, location: str) -> TableHistory:
        return next(each for each in self.tables if each.location == location)

    def next_tick(self) -> int:
        """The time of the next thing that happens."""
        self.times.append(self.clock())
        return len(self.times)

    def seconds_at(self, tick: int) -> float:
        return self.times[tick - 1]
