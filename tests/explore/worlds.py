"""The small worlds, as data."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from sluice.coordinator.commit.table import CoordinatedTable
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.creation import make_tree
from sluice.coordinator.nodes.layout import Place, TableTree
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules.intent import DeclaredReads
from sluice.coordinator.service.clock import Deadline
from sluice.coordinator.service.memory import MemoryCoordination
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import ObjectStore
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import creation

from ..coordinator.world import commit_one
from ..judge.judge import Judge
from .actor import Actor
from .more_programs import application, collector, inquirer, joint_appender, leased_appender, staging_appender, withdrawer
from .programs import Program, added, appender, asker, deleter, head_of, intent_of, publisher, settler
from .search import Search
from .seat import EPOCH_MS, Seat
from .services import Services

A: Final = "memory://small-a"
B: Final = "memory://small-b"
SCHEMA: Final = pa.schema([pa.field("k", pa.int64())])
QUEUE: Final = Limits(fast_path=False, patience_s=1.0, patience_s_max=4.0, publication_wait_s=30.0)
AT_ONCE: Final = replace(QUEUE, fast_path=True)
ROTATING: Final = replace(QUEUE, generation_slots_max=1)
FORGETFUL: Final = replace(QUEUE, backlog_versions_max=1, verdicts_kept=2)


@dataclass(frozen=True)
class World:
    """One small world: who is in it, what can go wrong, and how far it is looked into.

    `faults` is how many things go wrong at most, `kinds` which, to which `victims` (None: everybody). `early` is how often a
    client loses its patience although others could go on. `switches` bounds how often a client that could go on is interrupted
    (-1: no bound).
    """

    name: str
    about: str
    clients: Sequence[tuple[str, Program]]
    faults: int = 0
    kinds: frozenset[str] = frozenset()
    early: int = 0
    switches: int = -1
    victims: tuple[str, ...] | None = None
    tables: tuple[str, ...] = (A,)
    files: tuple[str, ...] = ()
    conditional_put: bool = True
    limits: Limits = QUEUE
    leased: bool = False
    created: bool = False
    """Whether the table is a whole one, with data files that are objects."""
    weight: float = 1.0
    """Its share of the time, beside others."""

    @property
    def bounds(self) -> str:
        """How far things may go wrong in it."""
        wrong = f"{self.faults} of {', '.join(sorted(self.kinds))}" if self.faults else "no fault"
        return f"{wrong}; {self.early} early" if self.early else wrong


class _StillClock:
    """No time passes while a world is set up."""

    def now_ms(self) -> int:
        return EPOCH_MS - 1000

    def monotonic_s(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Nothing."""

    def event(self) -> threading.Event:
        return threading.Event()


class _PlainAddress(TableAddress):
    """Where a whole table is made while a world is set up."""

    __slots__ = ("made",)

    made: TableContext

    @staticmethod
    def of_context(context: TableContext) -> _PlainAddress:
        address = _PlainAddress(context.tree.location, "memory://small")
        object.__setattr__(address, "made", context)
        return address

    def store(self) -> ObjectStore:
        return self.made.objects

    def context(self, limits: Limits | None = None) -> TableContext:
        return self.made


def _set_up(world: World) -> Services:
    coordination = MemoryCoordination()
    session = coordination.connect()
    objects: dict[tuple[str, str], bytes] = {}
    for table in world.tables:
        store = MemoryStore(table)
        store.forget()
        store = MemoryStore(table)
        context = TableContext(store, TableTree(table), lambda: session, _StillClock(), QUEUE, coordinator="memory://small")
        if world.created:
            creation.create(_PlainAddress.of_context(context), creation.new_table(SCHEMA))
        else:
            make_tree(context, Head())
        if world.files:
            coordinated = CoordinatedTable(context)
            intent = intent_of(context, Head(), [added(path) for path in world.files], DeclaredReads(nothing=True))
            commit_one(coordinated, intent, head_of(coordinated), Deadline.after(60.0, context.clock))
        objects |= {(table, key): content for key, (content, _) in store.disk.objects.items()}
        store.forget()
    return Services.of(coordination.tree, objects, behind="behind" in world.kinds)


def _quiet_in(world: World, services: Services) -> frozenset[str]:
    """The nodes that nobody changes: what tells a tree from another, and the leases where nobody takes one."""
    if "behind" in world.kinds:
        return frozenset()
    paths = set()
    for table in world.tables:
        tree = TableTree(table)
        paths.add(tree.root)
        paths |= set() if world.leased else {Place.of_table(tree).leases}
    return frozenset(paths)


def search_of(world: World, *, switches: int | None = None) -> Search:
    """The search through a world, with another bound of interruptions if that is given; `in_a_small_world` has to be around it."""

    def seat(actor: Actor, run: object) -> Seat:
        return Seat(actor, run, world.limits, conditional_put=world.conditional_put)  # type: ignore[arg-type]

    services = _set_up(world)
    actors = [Actor(name, index, program, seat) for index, (name, program) in enumerate(world.clients)]

    def asking(filed: tuple[tuple[str, str], ...]) -> Actor:
        return Actor("asker", len(actors), asker(filed, world.tables), seat)

    names = [name for name, _ in world.clients]
    victims = frozenset(range(len(names)) if world.victims is None else [names.index(name) for name in world.victims])
    return Search(
        services=services,
        actors=actors,
        judge=Judge(world.tables, files=world.created, pruned=world.limits.verdicts_kept < 32),
        faults=world.faults,
        kinds=world.kinds,
        early=world.early,
        switches=world.switches if switches is None else switches,
        quiet=_quiet_in(world, services),
        asker=asking,
        victims=victims,
    )


LOST: Final = frozenset({"request-lost", "reply-lost"})
EXPIRED: Final = frozenset({"expired", "expired-before", "expired-after"})
CRASH: Final = frozenset({"crash"})
BEHIND: Final = frozenset({"behind"})
PUTS: Final = frozenset({"put-lost", "put-unanswered", "put-late"})
FIRST_OF_W0: Final = str(uuid.UUID(int=1 << 64 | 1, version=4))
"""The GUID of the first client's first transaction."""

_TWO: Final = (("w0", appender(A, "x")), ("w1", appender(A, "y")))
_TWO_AT_ONCE: Final = (("w0", appender(A, "x", limits=AT_ONCE)), ("w1", appender(A, "y", limits=AT_ONCE)))
_MIXED: Final = (("w0", appender(A, "x", limits=AT_ONCE)), ("w1", appender(A, "y")))
_THREE_FILES: Final = (("w0", appender(A, "x")), ("w1", appender(A, "y", "z")))
_INQUIRER: Final = ("a", inquirer(A, FIRST_OF_W0))
_HELPER: Final = ("h", settler(A))
_PUBLISHER: Final = ("p", publisher(A))

_LEASED: Final = ("w0", leased_appender(A, "x"))

_ALL = [
    World("direct", "two appends on the fast path", _TWO_AT_ONCE, early=1),
    World("queue", "two appends through the queue", _TWO, early=2),
    World("mixed", "one on the fast path, one through the queue", _MIXED, early=2),
    World("behind", "the same; servers are behind", _MIXED, faults=2, kinds=BEHIND),
    World(
        "ahead",
        "two that replace a file each, so that versions are ratified before others are published",
        (("w0", deleter(A, "f", "x")), ("w1", deleter(A, "g", "y"))),
        files=("f", "g"),
        early=1,
    ),
    World("three", "three appends, one on the fast path", (*_MIXED, ("w2", appender(A, "z")))),
    World(
        "batch",
        "two acknowledged when ratified, and a publisher",
        (("w0", appender(A, "x", ack="ratified")), ("w1", appender(A, "y", ack="ratified")), _PUBLISHER),
        early=1,
    ),
    World("helper", "two appends and a helper", (*_TWO, _HELPER)),
    World("crash", "two appends and a helper; one dies", (*_TWO, _HELPER), faults=1, kinds=CRASH),
    World("publishers", "one append, one that helps, and two that publish", (_TWO[0], _HELPER, _PUBLISHER, ("q", publisher(A)))),
    World(
        "deleters",
        "two that replace one file, and a helper",
        (("w0", deleter(A, "f", "x")), ("w1", deleter(A, "f", "y")), _HELPER),
        files=("f",),
    ),
    World("lease", "one appends under a lease, one without; sessions expire", (_LEASED, _TWO[1]), faults=1, kinds=EXPIRED, leased=True),
    World(
        "lease-helped",
        "one appends under a lease, another decides for it; sessions expire",
        (_LEASED, _HELPER),
        faults=1,
        kinds=EXPIRED,
        early=1,
        victims=("w0",),
        leased=True,
    ),
    World(
        "leases",
        "two append under leases; a session expires",
        (_LEASED, ("w1", leased_appender(A, "y"))),
        faults=1,
        kinds=EXPIRED,
        leased=True,
        weight=2,
    ),
    World(
        "rotation",
        "generations of two slots; one dies, or a message is lost",
        _THREE_FILES,
        limits=ROTATING,
        faults=1,
        kinds=CRASH | LOST,
        weight=2,
    ),
    World(
        "joint",
        "one over two tables, one of a single table; one dies, or a message is lost",
        (("w0", joint_appender((A, B), "x")), ("w1", appender(B, "y"))),
        tables=(A, B),
        faults=1,
        kinds=CRASH | LOST,
    ),
    World(
        "joint-direct",
        "one over two tables, one on the fast path of a single table; a message is lost",
        (("w0", joint_appender((A, B), "x")), ("w1", appender(B, "y", limits=AT_ONCE))),
        tables=(A, B),
        faults=1,
        kinds=LOST,
    ),
    World(
        "joints", "two over two tables", (("w0", joint_appender((A, B), "x")), ("w1", joint_appender((A, B), "y"))), tables=(A, B), weight=2
    ),
    World(
        "applications",
        "two incarnations of one job; one dies, or a message is lost",
        (("w0", application(A, "x", 1)), ("w1", application(A, "y", 1))),
        files=("f",),
        faults=1,
        kinds=CRASH | LOST,
        early=1,
    ),
    World("asked", "one append, and one who asks for its outcome", (_TWO[0], _INQUIRER), faults=2, kinds=CRASH | LOST, early=1),
    World(
        "withdrawn",
        "one that loses patience and takes back what it filed, one append, one who asks for the outcome",
        (("w0", withdrawer(A, "x")), _TWO[1], _INQUIRER),
        early=1,
        weight=2,
    ),
    World(
        "pruning",
        "records are pruned while others look for theirs; messages are lost",
        _THREE_FILES,
        limits=FORGETFUL,
        faults=1,
        kinds=LOST,
    ),
    World(
        "lease-lost",
        "one under a lease, one whose message is lost, one who asks what became of that",
        (_TWO[0], ("w1", leased_appender(A, "y")), _INQUIRER),
        faults=1,
        kinds=LOST,
        victims=("w0",),
        leased=True,
        weight=3,
    ),
    World(
        "collector",
        "one writes a file and commits it later, one collects garbage; a session expires, or the writer dies",
        (("w0", staging_appender(A)), ("v", collector(A))),
        created=True,
        faults=1,
        kinds=EXPIRED | CRASH,
        victims=("w0",),
        weight=2,
    ),
    World(
        "collector-direct",
        "the same for one who commits on the fast path",
        (("w0", staging_appender(A, AT_ONCE)), ("v", collector(A))),
        created=True,
        faults=1,
        kinds=EXPIRED | CRASH,
        victims=("w0",),
        weight=2,
    ),
    World("puts", "two appends; writes of the log are lost, unanswered or late", _TWO, faults=2, kinds=PUTS, early=1, weight=2),
    World(
        "puts-plainly", "the same on a store without conditional PUT", _TWO, faults=2, kinds=PUTS, early=1, conditional_put=False, weight=2
    ),
    World("lost", "two appends; requests and replies are lost", _TWO, faults=2, kinds=LOST, early=1, weight=3),
    World("lost-direct", "two on the fast path; requests and replies are lost", _TWO_AT_ONCE, faults=2, kinds=LOST, early=1, weight=3),
    World("expired", "two appends; sessions expire", _TWO, faults=2, kinds=EXPIRED, early=1, weight=3),
    World("impatient", "two appends and a helper, who may lose their patience", (*_TWO, _HELPER), early=1, weight=3),
    World(
        "everybody",
        "two appends, a helper, a publisher, records are pruned; up to two things go wrong",
        (*_THREE_FILES, _HELPER, _PUBLISHER),
        limits=FORGETFUL,
        faults=2,
        kinds=CRASH | LOST | EXPIRED | PUTS,
        weight=4,
    ),
]

WORLDS: Final = {world.name: world for world in _ALL}
