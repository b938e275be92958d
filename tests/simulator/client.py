"""A client as a program: it opens the tables, does its operations one after the other, and notes the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sluice
from sluice.coordinator.api import outcome_of
from sluice.coordinator.commit.outcomes import Commit, Outcome
from sluice.coordinator.errors import OutcomeUnknown, TreeReplaced
from sluice.storage.actions import AddFile
from sluice.storage.errors import InvalidRequest, NotATable, SluiceError, Unavailable
from sluice.tables.table import Table
from sluice.tables.transaction import Transaction
from sluice.tables.write.data_writing import WritePlan
from tests.judge.incomplete_joints import incomplete_joints

from .doing import DO, at_the_next
from .history import Answer, Call, Read, Told
from .machine import Machine
from .model_operations import Operation
from .opening import Address, opened, rebuilt, rows_of
from .scheduler import Crashed

_RECOVERY_WAIT_S = 90.0
"""Longer than any former session and any request that was sent before its end can last in a simulation."""
_LAST_VACUUMS = 5
_MEETING_S = 12.0
"""Those who take numbers at once begin when so many seconds are over again."""


@dataclass
class Program:
    """The operations of one client, from the one to begin with; a restarted one goes on where the former stopped.

    `plans` are those that a former incarnation wrote down before it committed them: a job's own memory of what it did.
    """

    addresses: Sequence[Address]
    operations: Sequence[Operation]
    timeout_s: float
    think_s: float
    next_one: int = 0
    stopped: bool = False
    """Whether another one has taken its place: it ends after what it is at."""
    plans: dict[int, tuple[WritePlan, tuple[AddFile, ...]]] = field(default_factory=dict)
    tables: dict[int, Table] = field(default_factory=dict)
    begun: dict[int, Transaction] = field(default_factory=dict)
    """The last transaction of several operations on each table: if it lost, the next one has priority."""
    _opened: int = 0
    _names: dict[int, str] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        return self.addresses[0].machine

    def run(self) -> None:
        while self.next_one < len(self.operations) and not self.stopped:
            operation = self.operations[self.next_one]
            if operation.options.get("pause", 0.0) > 0.4:
                self.machine.clock.sleep(self.think_s * self.machine.draw())
            if operation.options.get("meets"):
                at_the_next(_MEETING_S, self.machine.clock)
            self.await_recovery()
            if self.stopped:
                break
            if operation.application is None and operation.kind not in ("plan", "relocate"):
                self.next_one += 1  # a restarted program does not repeat what could happen twice
                self.attempt(operation)
                continue
            for _ in range(3):
                answer = self.attempt(operation)
                if answer.kind in ("committed", "refused", "nothing", "done") or self.stopped:
                    break
                self.await_recovery()
            self.next_one += 1
        for table in self.tables.values():
            try:
                table.close()
            except (TreeReplaced, NotATable):
                if self.machine.around.history.lost_at is None:
                    raise
        self.tables.clear()  # each holds what it has read of its table
        self.begun.clear()

    def go_on_from(self, former: Program) -> None:
        """Take the place of a former incarnation, which may still be at something; a plan it had not written down is given up."""
        former.stopped = True
        self.next_one, self.plans = former.next_one, former.plans
        if self.next_one < len(self.operations):
            operation = self.operations[self.next_one]
            if operation.kind == "plan" and operation.number not in self.plans:
                self.next_one += 1

    def await_recovery(self) -> None:
        """After the coordinator's data were lost: the first client that notices rebuilds them, while the others wait."""
        history = self.machine.around.history
        while history.lost_at is not None and len(history.recovered) < len(self.addresses) and not self.stopped:
            self.machine.clock.sleep(8.0 * self.machine.draw())
            for number in range(len(self.addresses)):
                if number not in history.recovered and not self.stopped:
                    self.attempt(Operation("recover", -1, options={"wait_s": _RECOVERY_WAIT_S}, table=number))

    def table(self, number: int) -> Table:
        if number not in self.tables:
            self.tables[number] = Table(opened(self.addresses[number]), timeout_s=self.timeout_s)
            self._opened += 1
            self._names[number] = f"{self.machine.name} {self.machine.incarnation} {self._opened}"
        table = self.tables[number]
        call = self.machine.doing
        assert call is not None
        call.through[number] = self._names[number]
        table._ack = "ratified" if call.operation.options.get("ratified") else "published"
        return table

    def attempt(self, operation: Operation) -> Answer:
        """Do one operation, and note how it ended."""
        machine = self.machine
        history, clock = machine.around.history, machine.clock
        call = Call(
            machine.name, operation, history.next_tick(), machine.incarnation, began_s=clock.monotonic_s(), timeout_s=self.timeout_s
        )
        history.calls.append(call)
        machine.doing = call
        try:
            call.answer = self._answer(call)
        except Crashed:
            call.answer = Answer("crashed")
            raise
        finally:
            call.ended, call.ended_s = history.next_tick(), clock.monotonic_s()
            machine.doing = None
            machine.around.witness.told(call)
        return call.answer

    def _answer(self, call: Call) -> Answer:
        try:
            if call.operation.kind == "recover":
                rebuilt(self.addresses[call.operation.table], call.operation.options["wait_s"])
                return Answer("done")
            commits = DO[call.operation.kind](self, call)
        except OutcomeUnknown as unknown:
            return Answer("unknown", transaction_id=str(unknown.details.get("transaction_id", "")), reason=_told(unknown))
        except sluice.errors.NotCommitted as refusal:
            return Answer("refused", transaction_id=str(refusal.details.get("transaction_id", "")), reason=_told(refusal))
        except Unavailable as trouble:
            return Answer("failed", reason=_told(trouble))
        except SluiceError as error:
            if isinstance(error, (TreeReplaced, NotATable)):  # which says to open it again
                self.tables.clear()
            return Answer("error", reason=_told(error))
        if call.reads:
            return Answer("read")
        return Answer("done") if commits is None else _answer_of(commits)


def _told(error: SluiceError) -> str:
    return f"{type(error).__name__}: {error.message[:300]}"


def _answer_of(commits: Mapping[int, Commit]) -> Answer:
    if not commits:
        return Answer("nothing")
    places = {table: Told(commit.version, commit.ordinal, commit.published) for table, commit in commits.items()}
    ids = {commit.transaction_id for commit in commits.values()}
    return Answer("committed", places, ids.pop() if len(ids) == 1 else "", repeated=any(commit.repeated for commit in commits.values()))


def ask(addresses: Sequence[Address], undecided: Sequence[Sequence[str]], timeout_s: float) -> list[Read]:
    """The outcomes that a client gets at the end for these transactions of each table, and the rows that it reads."""
    machine = addresses[0].machine
    history = machine.around.history
    reads: list[Read] = []
    for address, transaction_ids in zip(addresses, undecided, strict=True):
        if history.lost_at is not None and history.at(address.location).number not in history.recovered:
            rebuilt(address, 0.0)
        access = opened(address)
        table, ours = history.at(address.location), access
        for each in transaction_ids:
            outcome: Outcome = outcome_of(ours, each, timeout_s)
            number = {} if outcome.commit is None else {table.number: outcome.commit}
            table.outcomes[each] = (
                _answer_of(number) if number else Answer(outcome.state, reason="" if outcome.error is None else _told(outcome.error))
            )
        ours.publish()
        shown = Table(access).snapshot(consistency="serial")
        rows, _ = rows_of(shown.to_arrow())
        reads.append(Read(table.number, "serial", shown.version, rows))
    found = incomplete_joints({address.location: address.store() for address in addresses})
    history.incomplete = {each.transaction_id: dict(each.missing) for each in found}
    return reads


def collect(addresses: Sequence[Address]) -> None:
    """Collect garbage until there is none, when every other client is gone and all retention is over."""
    for address in addresses:
        table = Table(opened(address))
        for _ in range(_LAST_VACUUMS):
            try:
                if not table.vacuum().garbage:
                    break
            except InvalidRequest as given_back:
                address.machine.around.history.trouble.append(f"the last vacuum was refused: {_told(given_back)}")
                return
