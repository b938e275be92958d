"""Several tables of one coordinator in memory, and clients that commit to all of them at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.coordinator.commit.outcomes import Commit, Outcome
from sluice.coordinator.commit.table import CoordinatedTable
from sluice.coordinator.commit.transactions import commit_filings, outcome_of
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules.intent import DeclaredReads, Intent, Joint
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import MemoryCoordination, MemorySession
from sluice.coordinator.service.store import Create
from sluice.storage.actions.texts import sha256
from sluice.storage.stores.memory import MemoryStore

from .world import QUICK, World, append_intent, commit_one, filing_of, soon


def alone(client: JointClient, name: str, intent: Intent, **options: Any) -> int:
    """Commit a transaction of one table; its version."""
    return commit_one(client.coordinated[name], intent, client.head(name), soon(), **options).version


@dataclass
class JointWorld:
    """Tables by a short name; their locations are in the order of the names."""

    names: str = "abc"
    coordination: MemoryCoordination = field(default_factory=MemoryCoordination)
    tables: dict[str, World] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mark = uuid.uuid4().hex
        for name in self.names:
            self.tables[name] = World(self.coordination, MemoryStore.open(f"{mark}-{name}"))

    def client(self, limits: Limits = QUICK) -> JointClient:
        return JointClient(self, limits)

    def location(self, name: str) -> str:
        return self.tables[name].tree.location

    def vanish(self, name: str) -> None:
        """Remove a table's nodes, as an administrator may."""
        root = self.tables[name].tree.root
        for path in sorted((node.path for node in self.coordination.tree.walk() if node.path.startswith(root)), reverse=True):
            self.coordination.connect().delete(path)

    def check(self) -> None:
        """What must hold after every run: each log is sound, and what belongs together is there in every table, once."""
        joints: dict[str, dict[str, int]] = {}
        seen: dict[str, dict[str, int]] = {}
        for world in self.tables.values():
            world.check()
            for version, commit in enumerate(world.log()):
                for entry in commit[0]["commitInfo"]["sluice"]["transactions"]:  # type: ignore[index]
                    if "joint" in entry:
                        told = joints.setdefault(entry["id"], entry["joint"])
                        assert told == entry["joint"], "two tables tell different versions"
                        seen.setdefault(entry["id"], {})[world.tree.location] = version
        assert seen == joints


class JointClient:
    """One process with one session, and an object for each table."""

    def __init__(self, world: JointWorld, limits: Limits = QUICK) -> None:
        self.world = world
        self.session: MemorySession = world.coordination.connect()
        self.next_lag = 0
        """How far the server of its next session is behind."""
        self.coordinated: dict[str, CoordinatedTable] = {}
        for name, table in world.tables.items():
            self.coordinated[name] = CoordinatedTable(TableContext(table.objects, table.tree, self.connect, SystemClock(), limits))

    def connect(self) -> MemorySession:
        if self.session.lost:
            self.session = self.world.coordination.connect()
            self.session.lag = self.next_lag
        return self.session

    def head(self, name: str) -> Head:
        state = self.coordinated[name].context.read_head()
        assert state is not None
        return state[0]

    def intents(self, names: Iterable[str], files: Mapping[str, str] | None = None) -> dict[str, Intent]:
        """Blind appends of one file each, under one GUID."""
        guid = str(uuid.uuid4())
        wanted = files or {}
        return {name: append_intent(self.head(name), wanted.get(name, f"{guid}.parquet"), transaction_id=guid) for name in names}

    def reading(self, *files: str, read: str = "a", written: str = "b") -> dict[str, Intent]:
        """A transaction that reads these files of one table, or nothing in particular, and appends to another."""
        intents = self.intents(written)
        seen = replace(append_intent(self.head(read)), reads=DeclaredReads(read_files=files), actions="", actions_digest=sha256(b""))
        return {read: replace(seen, transaction_id=intents[written].transaction_id), **intents}

    def commit(self, intents: Mapping[str, Intent], *, timeout_s: float = 10.0, ack: str = "published") -> dict[str, Commit]:
        filings = [filing_of(self.coordinated[name], intent) for name, intent in intents.items()]
        commits = commit_filings(filings, Deadline.after(timeout_s, SystemClock()), ack=ack)
        return {name: commits[self.world.location(name)] for name in intents if self.world.location(name) in commits}

    def append(self, names: Iterable[str], **options: str) -> dict[str, Commit]:
        return self.commit(self.intents(names, options))

    def file(self, intents: Mapping[str, Intent]) -> list[str]:
        """Make the slots as a writer does that dies then; their paths."""
        joint = Joint(tuple(sorted(self.world.location(name) for name in intents)))
        ops: list[Create] = []
        for name, intent in intents.items():
            prefix = self.world.tables[name].tree.slot_prefix(0, intent.transaction_id)
            ops.append(Create(prefix, replace(intent, joint=joint).encode(), sequential=True))
        return [str(path) for path in self.session.apply(ops)]

    def outcome(self, name: str, transaction_id: str, timeout_s: float = 10.0) -> Outcome:
        return outcome_of(self.coordinated[name], transaction_id, Deadline.after(timeout_s, SystemClock()))
