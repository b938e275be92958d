"""A table in memory with any number of clients: the production commit path on the deterministic twins."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from sluice.coordinator.commit.decider import Batch, Decider, QueueView
from sluice.coordinator.commit.leg import Leg
from sluice.coordinator.commit.outcomes import Claim, Commit, Outcome
from sluice.coordinator.commit.queue import Filing, file_intents
from sluice.coordinator.commit.table import CoordinatedTable
from sluice.coordinator.commit.transactions import CommitLoop, commit_filings, outcome_of
from sluice.coordinator.formats import Release
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.creation import make_tree
from sluice.coordinator.nodes.layout import TableTree, VerdictName
from sluice.coordinator.nodes.records import BatchRecord, Head, Published
from sluice.coordinator.publication.publisher import spare
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.coordinator.rules.winner import Footprint, Member
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, MemoryCoordination, MemorySession
from sluice.coordinator.service.store import Create, Delete, Write
from sluice.storage.actions import Action, AddFile, DeletionVector, RemoveFile, Txn, decode_commit, encode_all
from sluice.storage.actions.texts import sha256
from sluice.storage.data.vectors import Rows
from sluice.storage.errors import CorruptLogFile
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import ObjectStore
from tests.raw_chain import file_number, misfits

QUICK = Limits(fast_path=False, patience_s=0.02, patience_s_max=0.2, publication_wait_s=0.5)
DIRECT = replace(QUICK, fast_path=True)
DAY_MS = 24 * 3600 * 1000
PARTITIONED = DeclaredReads(partition_types={"p": "string"})


def filing_of(table: CoordinatedTable, intent: Intent, head: Head | None = None) -> Filing:
    """An intent with its actions in it, as it is filed; those of a broken client need not be actions."""
    try:
        footprint = Member(intent, intent.actions.encode()).footprint
    except CorruptLogFile:
        footprint = Footprint()
    return Filing(table, Member(intent, intent.actions.encode(), (), footprint), head)


class Calendar(SystemClock):
    """A calendar that can be turned."""

    days = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.days * DAY_MS


def soon(seconds: float = 20.0) -> Deadline:
    """A deadline."""
    return Deadline.after(seconds, SystemClock())


def claim_slot(context: TableContext, intent: Intent, head: Head, deadline: Deadline) -> Claim:
    """File an intent, as a writer does that dies then."""
    [claim] = file_intents([filing_of(CoordinatedTable(context), intent, head)], deadline)
    assert claim is not None
    return claim


def commit_one(table: CoordinatedTable, intent: Intent, head: Head, deadline: Deadline, *, ack: str = "published") -> Commit:
    return commit_filings([filing_of(table, intent, head)], deadline, ack=ack)[table.location]


def see_through(coordinated: CoordinatedTable, claim: Claim, intent: Intent, deadline: Deadline) -> Commit:
    """Follow a transaction that is filed, until it is published."""
    legs = [Leg(coordinated, intent.transaction_id, claim, intent)]
    return CommitLoop(Decider(coordinated), legs, deadline).run()[coordinated.location]


def decide(coordinated: CoordinatedTable) -> Sequence[Batch]:
    """Decide what is queued, and die before it is published."""
    state = coordinated.context.look()
    assert state is not None
    return Decider(coordinated).decide(QueueView(coordinated, state))


def no_vectors(vector: DeletionVector) -> Rows:
    """A lookup where no file has a deletion vector."""
    raise AssertionError(f"nobody should ask for {vector.unique_id}")


def prune(context: TableContext) -> None:
    """Take away all records that are spare, as raises do a few at a time."""
    while True:
        state = context.look()
        names = [] if state is None else spare(state.records, state.published, context.limits.verdicts_kept)
        if not names:
            return
        context.coordination.apply([Delete(context.tree.verdict(name)) for name in names])


class Client:
    """One writer: its own session (a new one when it expired) and its own caches."""

    def __init__(self, world: World, limits: Limits = QUICK, objects: ObjectStore | None = None, release: Release | None = None) -> None:
        self.world = world
        self.session: MemorySession = world.coordination.connect()
        self.context = TableContext(
            objects or world.objects, world.tree, self._connect, SystemClock(), limits, release=release or Release()
        )
        self.coordinated = CoordinatedTable(self.context)
        self.next_lag = 0
        """How far the server of its next session is behind."""

    def with_calendar(self, days: int = 0) -> Calendar:
        """Gives it a clock that can be turned."""
        calendar = Calendar()
        calendar.days = days
        object.__setattr__(self.context, "clock", calendar)
        return calendar

    def _connect(self) -> MemorySession:
        if self.session.lost:
            self.session = self.world.coordination.connect()
            self.session.lag = self.next_lag
        return self.session

    def head(self) -> Head:
        state = self.context.read_head()
        assert state is not None
        return state[0]

    def commit(self, intent: Intent, head: Head | None = None, *, timeout_s: float = 5.0, ack: str = "published") -> Commit:
        return commit_one(self.coordinated, intent, head or self.head(), Deadline.after(timeout_s, self.context.clock), ack=ack)

    def append(self, name: str | None = None, **changes: Any) -> Commit:
        return self.commit(append_intent(self.head(), name, **changes))

    def record(self, name: VerdictName | str) -> BatchRecord:
        """The record of a batch."""
        node = self.session.read(f"{self.world.tree.verdicts}/{name}")
        assert node is not None
        return BatchRecord.decode(node.data)

    def published(self) -> Published:
        state = self.context.read_published()
        assert state is not None
        return state[0]

    def claim(self, intent: Intent) -> Claim:
        """File an intent, and die."""
        return claim_slot(self.context, intent, self.head(), soon())

    def outcome(self, transaction_id: str, seconds: float = 20.0) -> Outcome:
        return outcome_of(self.coordinated, transaction_id, soon(seconds))

    def committed(self, transaction_id: str) -> Commit:
        """The commit that anybody who asks for a transaction gets."""
        commit = self.outcome(transaction_id).commit
        assert commit is not None
        return commit


def add(path: str, **changes: Any) -> AddFile:
    """A data file that nobody will read."""
    return replace(AddFile(path, {}, 1, 1, True, stats='{"numRecords":1}'), **changes)


def remove(path: str) -> RemoveFile:
    return RemoveFile(path, True, deletion_timestamp=1)


def intent_of(head: Head, actions: Sequence[Action], reads: DeclaredReads, changes: dict[str, Any] | None = None) -> Intent:
    """An intent made on the head, with a fresh GUID, and some of its fields changed."""
    text = encode_all(actions)
    base = Intent(
        transaction_id=str(uuid.uuid4()),
        operation="WRITE",
        read_version=head.version,
        validated_through=head.version,
        claimed_ms=SystemClock().now_ms(),
        reads=reads,
        actions=text.decode(),
        actions_digest=sha256(text),
    )
    return replace(base, **(changes or {}))


def append_intent(head: Head, name: str | None = None, **changes: Any) -> Intent:
    path = name or f"{uuid.uuid4()}.parquet"
    return intent_of(head, [add(path)], DeclaredReads(nothing=True), changes)


def app_intent(head: Head, number: int, **beside: int) -> Intent:
    """An append that an application numbers; numbers of other applications are written `beside`."""
    numbers = {"app": number, **beside}
    return intent_of(
        head, [*(Txn(app, each) for app, each in numbers.items()), add(f"{uuid.uuid4()}.parquet")], DeclaredReads(nothing=True)
    )


def rewrite_intent(head: Head, old: str, new: str, **changes: Any) -> Intent:
    """One file replaced by another, having read it."""
    reads = changes.pop("reads", DeclaredReads(read_files=(old,), partition_types={"p": "string"}))
    return intent_of(head, [remove(old), add(new)], reads, changes)


def once(coordination: MemoryCoordination, act: Callable[[], object], when: Callable[[Call], bool], *, after: bool = False) -> None:
    """Have something done right before (or after) the first request of a kind."""

    def look(call: Call) -> None:
        if when(call):
            coordination.before = coordination.after = None
            act()

    if after:
        coordination.after = look
    else:
        coordination.before = look


def barrier_of(session: MemorySession) -> Callable[[Call], bool]:
    """A barrier in a session: its client begins to look for what became of a request."""
    return lambda call: call.verb == "barrier" and call.session_id == session.session_id


def files_slots(call: Call) -> bool:
    return any(isinstance(op, Create) and op.sequential for op in call.ops)


def ratifies(call: Call) -> bool:
    return any(isinstance(op, Write) and op.path.endswith("/head") for op in call.ops)


def eventually(holds: Callable[[], bool], what: str, *, seconds: float = 20.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.005)


@dataclass
class World:
    """The services, and what can be said about a finished run."""

    coordination: MemoryCoordination = field(default_factory=MemoryCoordination)
    objects: MemoryStore = field(default_factory=lambda: MemoryStore.open(str(uuid.uuid4())))
    tree: TableTree = field(init=False)

    def __post_init__(self) -> None:
        self.tree = TableTree(self.objects.location)
        make_tree(Client(self).context, Head())

    def once(self, act: Callable[[], object], when: Callable[[Call], bool], *, after: bool = False) -> None:
        """Have something done right before (or after) the first request of a kind."""
        once(self.coordination, act, when, after=after)

    def client(self, limits: Limits = QUICK, release: Release | None = None) -> Client:
        return Client(self, limits, release=release)

    def log(self) -> list[list[dict[str, object]]]:
        """The published log: the actions of every version, from 0, dense."""
        names = [i.key for i in self.objects.list_from("_delta_log/") if i.key.endswith(".json")]
        assert names == [commit_path(v) for v in range(len(names))], f"the log is not dense: {names}"
        return [[orjson.loads(line) for line in self.objects.get(n).splitlines()] for n in names]

    def transactions(self) -> list[str]:
        """The ids of all committed transactions, in log order."""
        infos = [commit[0]["commitInfo"] for commit in self.log()]
        return [t["id"] for info in infos for t in info["sluice"]["transactions"]]  # type: ignore[index]

    def files(self, upto: int | None = None) -> set[str]:
        """The live files, by plain replay; as of version `upto` where that is given."""
        live: set[str] = set()
        for version, commit in enumerate(self.log()[: None if upto is None else upto + 1]):
            for action in decode_commit(b"\n".join(orjson.dumps(a) for a in commit), name=str(version)):
                if isinstance(action, RemoveFile):
                    assert action.path in live, f"version {version} removes {action.path}, which is not live"
                    live.discard(action.path)
                elif isinstance(action, AddFile):
                    assert action.path not in live, f"version {version} adds {action.path} twice"
                    live.add(action.path)
        return live

    def check(self) -> None:
        """What must hold after every run: the tree's counters fit the log, times increase, nobody is committed twice."""
        log = self.log()
        times = [c[0]["commitInfo"]["inCommitTimestamp"] for c in log]  # type: ignore[index]
        assert all(a < b for a, b in itertools.pairwise(times)), times
        committed = self.transactions()
        assert len(committed) == len(set(committed)), "a transaction was committed twice"
        self.files()
        assert self.misfits() == []

    def misfits(self) -> list[str]:
        """What is wrong with the chain of the published log."""
        found: list[str] = []
        before, files = None, 0
        for version in range(len(self.log())):
            content = self.objects.get(commit_path(version))
            info, *actions = [orjson.loads(line) for line in content.splitlines()]
            for each in actions:
                files += file_number(each["add"]) if "add" in each else -file_number(each["remove"]) if "remove" in each else 0
            found += misfits(version, info["commitInfo"], before, files)
            before = content
        return found
