"""A client as a program: it opens the table, does its operations by sluice's own API, and notes what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

import sluice
from sluice.coordinator.clock import Deadline
from sluice.coordinator.context import TableContext
from sluice.coordinator.errors import LeaseLost, OutcomeUnknown
from sluice.coordinator.layout import TableTree
from sluice.coordinator.limits import Limits
from sluice.coordinator.outcomes import Commit, Outcome
from sluice.coordinator.records import ClientName
from sluice.storage.actions import AddFile
from sluice.storage.errors import NotATable, SluiceError, TableExists, Unavailable
from sluice.storage.objects import ObjectStore
from sluice.tables import creation
from sluice.tables.access import Access, TableAddress
from sluice.tables.table import Table
from sluice.tables.transaction import Transaction
from sluice.tables.writing import WritePlan

from .history import Answer, Call, Read
from .machine import Machine
from .operations import Operation, State, Step
from .scheduler import Crashed

__all__ = ["Address", "Program", "create_table", "outcomes_of"]

SCHEMA = pa.schema([pa.field("uid", pa.int64(), nullable=False), pa.field("k", pa.int64()), pa.field("v", pa.int64())])
_RETRIES = 120


class Address(TableAddress):
    """A table's address on one machine."""

    __slots__ = ("limits", "machine")

    machine: Machine
    limits: Limits

    def store(self) -> ObjectStore:
        """The object store as the machine reaches it."""
        return self.machine.store

    def context(self, limits: Limits | None = None) -> TableContext:
        """What the commit path works with on the machine."""
        machine = self.machine
        client = ClientName("simulated", 1000 + machine.number, machine.name)
        return TableContext(self.store(), TableTree(self.location), machine.connect, machine.clock, limits or self.limits, client)

    @staticmethod
    def on(machine: Machine, limits: Limits) -> Address:
        """The address of the run's table."""
        address = Address(machine.store.location, "memory://simulated")
        object.__setattr__(address, "machine", machine)
        object.__setattr__(address, "limits", limits)
        return address


def _table_of(rows: State) -> pa.Table:
    columns = [pa.array(list(rows), pa.int64()), *(pa.array([row[n] for row in rows.values()], pa.int64()) for n in range(2))]
    return pa.table(columns, schema=SCHEMA)


def create_table(address: Address, properties: dict[str, str], partition_by: Sequence[str]) -> None:
    """Create the table, unless somebody did; again when a service was away."""
    for _ in range(_RETRIES):
        try:
            creation.create(address, SCHEMA, list(partition_by), properties)
            return
        except (TableExists, sluice.NotCommitted):
            return  # somebody else was first; it may have been given back since
        except (Unavailable, OutcomeUnknown):
            address.machine.clock.sleep(1.0)


def _opened(address: Address) -> Access:
    """The table, brought in again when somebody gave it back and died."""
    try:
        return Access.coordinated(address, address.limits)
    except NotATable:
        creation.attach(address)
        return Access.coordinated(address, address.limits)


@dataclass
class Program:
    """The operations of one client, from the one to begin with; a restarted one goes on where the former stopped.

    `plans` are those that a former incarnation wrote down before it committed them: a job's own memory of what it did.
    """

    address: Address
    operations: Sequence[Operation]
    timeout_s: float
    think_s: float
    next_one: int = 0
    stopped: bool = False
    """Whether another one has taken its place: it ends after what it is at."""
    plans: dict[int, tuple[WritePlan, tuple[AddFile, ...]]] = field(default_factory=dict)
    _table: Table | None = None
    _tables: int = 0

    @property
    def machine(self) -> Machine:
        """Where it runs."""
        return self.address.machine

    def run(self) -> None:
        """Do the operations that are left."""
        while self.next_one < len(self.operations) and not self.stopped:
            operation = self.operations[self.next_one]
            if operation.options.get("pause", 0.0) > 0.4:
                self.machine.clock.sleep(self.think_s * self.machine.draw())
                if self.stopped:
                    break
            if operation.application is None and operation.kind != "plan":
                self.next_one += 1  # a restarted program does not repeat what could happen twice
                self.attempt(operation)
                continue
            for _ in range(3):
                answer = self.attempt(operation)
                if answer.kind in ("committed", "refused", "nothing") or self.stopped:
                    break
            self.next_one += 1
        if self._table is not None:
            self._table.close()

    def go_on_from(self, former: Program) -> None:
        """Take the place of a former incarnation, which may still be at something; a plan it had not written down is given up."""
        former.stopped = True
        self.next_one, self.plans = former.next_one, former.plans
        if self.next_one < len(self.operations):
            operation = self.operations[self.next_one]
            if operation.kind == "plan" and operation.number not in self.plans:
                self.next_one += 1

    def attempt(self, operation: Operation) -> Answer:
        """Do one operation, and note how it ended."""
        history = self.machine.around.history
        clock = self.machine.clock
        call = Call(self.machine.name, operation, history.next_tick(), began_s=clock.monotonic_s(), timeout_s=self.timeout_s)
        history.calls.append(call)
        self.machine.doing = call
        try:
            call.answer = self._answer(call)
        except Crashed:
            call.answer = Answer("crashed")
            raise
        finally:
            call.ended, call.ended_s = history.next_tick(), clock.monotonic_s()
            self.machine.doing = None
        return call.answer

    def _answer(self, call: Call) -> Answer:
        try:
            if self._table is None:
                self._table = Table(_opened(self.address), timeout_s=self.timeout_s)
                self._tables += 1
            call.table = f"{self.machine.name} {self.machine.incarnation} {self._tables}"
            self._table._ack = "ratified" if call.operation.options.get("ratified") else "published"
            commit = _DO[call.operation.kind](self, self._table, call)
        except OutcomeUnknown as unknown:
            return Answer("unknown", transaction_id=str(unknown.details.get("transaction_id", "")), reason=_told(unknown))
        except sluice.NotCommitted as refusal:
            return Answer("refused", transaction_id=str(refusal.details.get("transaction_id", "")), reason=_told(refusal))
        except Unavailable as trouble:
            return Answer("failed", reason=_told(trouble))
        except SluiceError as error:
            return Answer("error", reason=_told(error))
        if call.read is not None:
            return Answer("read", call.read.version)
        return _answer_of(commit)

    # -- the operations ----------------------------------------------------------------------------------------------

    def _write(self, table: Table, call: Call) -> Commit | None:
        operation = call.operation
        application = None if operation.application is None else (f"app-{self.machine.number}", operation.application)
        if operation.options["begun"] or len(operation.steps) > 1:
            begun = table.begin(transaction=application)
            for step in operation.steps:
                _do_step(begun, step)
            try:
                return begun.commit()
            except OutcomeUnknown as unknown:
                return self._again(begun, unknown)
        step = next(iter(operation.steps))
        match step.kind:
            case "append":
                return table.append(_table_of(step.rows), transaction=application)
            case "overwrite":
                return table.overwrite(_table_of(step.rows), step.where, transaction=application)
            case "delete":
                return table.delete(step.where)
            case "upsert":
                return table.upsert(_table_of(step.rows), on=["uid"])
            case _:
                return table.update(_assignment(step), step.where)

    def _again(self, begun: Transaction, unknown: OutcomeUnknown) -> Commit | None:
        """Call `commit` again, sometimes: it finds out, or is as unknown as before."""
        if self.machine.draw() < 0.5:
            raise unknown
        try:
            return begun.commit()
        except Unavailable:
            raise unknown from None

    def _leased(self, table: Table, call: Call) -> Commit | None:
        """A change under a lease on all of the table; what it costs others, they wait for."""
        options = call.operation.options
        commits: list[Commit | None] = []
        try:
            with table.lease(options["mode"], wait_s=0.5 + 5.0 * self.machine.draw()):
                self.machine.clock.sleep(2.0 * self.machine.draw() ** 4)
                self.machine.lose_lease(call.operation.number)
                commits.append(self._write(table, call))
        except LeaseLost:
            if not commits:
                raise
        return commits[0]  # what was committed under a lease stands, though the lease was lost afterwards

    def _plan(self, table: Table, call: Call) -> Commit | None:
        operation = call.operation
        if operation.number not in self.plans:
            plan = table.plan_write(SCHEMA)
            self.plans[operation.number] = plan, plan.write(_table_of(operation.steps[0].rows))
        plan, files = self.plans[operation.number]
        return table.commit_write(plan, files)

    def _compact(self, table: Table, call: Call) -> Commit | None:
        return table.compact(call.operation.options["mode"])

    def _properties(self, table: Table, call: Call) -> Commit | None:
        return table.set_properties({"simulated.by": str(call.operation.number), "delta.checkpointInterval": "7"})

    def _read(self, table: Table, call: Call) -> None:
        level = call.operation.options["level"]
        shown = table.snapshot(consistency=level)
        rows = shown.to_arrow()
        uids = rows["uid"].to_pylist()
        if len(uids) != len(set(uids)):
            self.machine.around.history.trouble.append(f"{call}: rows are there twice in version {shown.version}")
        values = zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True)
        call.read = Read(level, shown.version, dict(zip(uids, values, strict=True)))

    def _checkpoint(self, table: Table, call: Call) -> None:
        table.checkpoint()

    def _reopen(self, table: Table, call: Call) -> None:
        self._table = None
        table.close()

    def _rebring(self, table: Table, call: Call) -> Commit | None:
        """Give the table back to other engines, and bring it in again."""
        self._table = None
        table.detach()
        _, commit = creation.attach(self.address)
        return commit


_DO: dict[str, Callable[[Program, Table, Call], Commit | None]] = {
    "write": Program._write,
    "leased": Program._leased,
    "plan": Program._plan,
    "compact": Program._compact,
    "properties": Program._properties,
    "read": Program._read,
    "checkpoint": Program._checkpoint,
    "reopen": Program._reopen,
    "rebring": Program._rebring,
}


def _do_step(begun: Transaction, step: Step) -> None:
    match step.kind:
        case "append":
            begun.append(_table_of(step.rows))
        case "overwrite":
            begun.overwrite(_table_of(step.rows), step.where)
        case "delete":
            begun.delete(step.where)
        case "upsert":
            begun.upsert(_table_of(step.rows), on=["uid"])
        case _:
            begun.update(_assignment(step), step.where)


def _assignment(step: Step) -> dict[str, str]:
    return {"v": f"v + {step.amount}"} if step.kind == "update" else {"k": f"(k + {step.amount}) % 3"}


def _told(error: SluiceError) -> str:
    return f"{type(error).__name__}: {error.message[:300]}"


def _answer_of(commit: Commit | None) -> Answer:
    if commit is None:
        return Answer("nothing")
    return Answer("committed", commit.version, commit.ordinal, commit.transaction_id, repeated=commit.repeated, published=commit.published)


def outcomes_of(address: Address, transaction_ids: Sequence[str], timeout_s: float) -> tuple[dict[str, Answer], Read]:
    """What a client that comes when all is over is told of these transactions, and what it reads."""
    access = _opened(address)
    committer = access.ours
    answers: dict[str, Answer] = {}
    for each in transaction_ids:
        outcome: Outcome = committer.outcome(each, Deadline.after(timeout_s, committer.context.clock))
        if outcome.commit is not None:
            answers[each] = _answer_of(outcome.commit)
        else:
            answers[each] = Answer(outcome.state, reason="" if outcome.error is None else _told(outcome.error))
    committer.publisher.publish_pending()
    table = Table(access)
    shown = table.snapshot(consistency="serial")
    rows = shown.to_arrow()
    values = zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True)
    return answers, Read("serial", shown.version, dict(zip(rows["uid"].to_pylist(), values, strict=True)))
