"""What clients of small worlds do under leases, to several tables at once, and to the garbage of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sluice.coordinator.commit.transactions import commit_filings, outcome_of
from sluice.coordinator.errors import NotCommitted, OutcomeUnknown
from sluice.coordinator.leases.granting import LeaseClient, Wanted
from sluice.coordinator.leases.lease import acquire
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.layout import Place, TableTree
from sluice.coordinator.nodes.presence import Presence
from sluice.coordinator.nodes.records import EXCLUSIVE
from sluice.coordinator.rules.intent import ClientName, DeclaredReads
from sluice.coordinator.service.clock import Deadline
from sluice.storage.actions import Txn
from sluice.storage.errors import SluiceError, Unavailable
from sluice.tables.client.address import TableAddress
from sluice.tables.client.open_table import open_coordinated
from sluice.tables.maintain.vacuum import vacuum

from ..coordinator.world import commit_one, filing_of
from .programs import TIME_S, Program, added, append_intent, commit_here, context_of, coordinated_of, head_of, intent_of, telling
from .seat import Seat

_SOON_S = 1.0


def leased_appender(table: str, path: str, mode: str = EXCLUSIVE, limits: Limits | None = None) -> Program:
    """Appends a file under a lease on the whole table, and lets go of it."""

    def aside(work: Callable[[], None], name: str) -> None:
        if name == "sluice-let-go":  # the other one only notes that a lease is lost, which nothing here asks
            work()

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table, limits)
        home = LeaseClient(seat.connect, "small", seat, ClientName("small", seat.actor.index, seat.name), aside)
        try:
            lease = acquire(home, [Wanted(Place.of_table(TableTree(table)), mode)], wait_s=TIME_S)
        except SluiceError as none:
            seat.tell("lease", table, type(none).__name__)
            return
        head = head_of(coordinated)
        intent = append_intent(coordinated.context, head, path, leases=tuple(lease.nodes))
        commit_here(seat, coordinated, intent, head)
        lease.release()

    return program


def joint_appender(tables: Sequence[str], path: str, limits: Limits | None = None) -> Program:
    """Appends a file to several tables, in all of them or in none."""

    def program(seat: Seat) -> None:
        tables_here = {table: coordinated_of(seat, table, limits) for table in tables}
        transaction = tables_here[tables[0]].context.new_transaction_id()
        intents = {
            table: append_intent(each.context, head_of(each), path, transaction_id=transaction) for table, each in tables_here.items()
        }
        filings = [filing_of(each, intents[name]) for name, each in tables_here.items()]
        telling(seat, tables, transaction, lambda: commit_filings(filings, Deadline.after(TIME_S, seat)))

    return program


def application(table: str, path: str, number: int, limits: Limits | None = None) -> Program:
    """Appends a file as an application's transaction of that number, as two incarnations of one job may do."""

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table, limits)
        head = head_of(coordinated)
        intent = intent_of(coordinated.context, head, [Txn("app", number), added(path)], DeclaredReads(nothing=True), validated_through=0)
        commit_here(seat, coordinated, intent, head)

    return program


def inquirer(table: str, transaction_id: str, limits: Limits | None = None) -> Program:
    """Asks for the outcome of a transaction of somebody else, whenever that is."""

    def program(seat: Seat) -> None:
        try:
            outcome = outcome_of(coordinated_of(seat, table, limits), transaction_id, Deadline.after(TIME_S, seat))
        except (OutcomeUnknown, Unavailable) as trouble:
            seat.tell("asking", table, type(trouble).__name__)
            return
        if outcome.commit is not None:
            done = outcome.commit
            seat.tell("committed", table, done.transaction_id, done.version, done.ordinal, done.repeated)
        elif outcome.error is not None:
            seat.tell("refused", table, transaction_id, str(outcome.error.details.get("rule", "")))

    return program


def withdrawer(table: str, path: str) -> Program:
    """Appends a file, loses its patience, and takes back what it filed, unless it comes too late for that."""

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table)
        head = head_of(coordinated)
        intent = append_intent(coordinated.context, head, path)
        name = intent.transaction_id
        try:
            done = commit_one(coordinated, intent, head, Deadline.after(_SOON_S, seat))
        except OutcomeUnknown:
            outcome = outcome_of(coordinated, name, Deadline.after(TIME_S, seat), withdrawing=True)
            if outcome.commit is None:
                seat.tell("refused", table, name, outcome.state)
                return
            done = outcome.commit
        seat.tell("committed", table, done.transaction_id, done.version, done.ordinal, done.repeated)

    return program


def _present(seat: Seat, table: str, limits: Limits | None) -> TableContext:
    return context_of(seat, table, limits, presence=Presence(seat.connect, application=seat.name, clock=seat))


def staging_appender(table: str, limits: Limits | None = None) -> Program:
    """Writes a data file, and commits it afterwards: between the two nobody but its presence knows of it."""

    def program(seat: Seat) -> None:
        context = _present(seat, table, limits)
        coordinated = coordinated_of(seat, table, limits, context=context)
        transaction = context.new_transaction_id()
        path = f"part-{transaction}.parquet"
        context.objects.put(path, b"rows")
        head = head_of(coordinated)
        intent = append_intent(context, head, path, transaction_id=transaction)
        commit_here(seat, coordinated, intent, head)

    return program


class Address(TableAddress):
    """A table's address as a seat has it."""

    __slots__ = ("seat",)

    seat: Seat

    @staticmethod
    def at(seat: Seat, table: str) -> Address:
        """The address of a table for a seat."""
        address = Address(table, "memory://small")
        object.__setattr__(address, "seat", seat)
        return address

    def store(self) -> Any:
        return self.seat.store(self.location)

    def context(self, limits: Limits | None = None) -> TableContext:
        return _present(self.seat, self.location, limits)


def collector(table: str, limits: Limits | None = None) -> Program:
    """Deletes what belongs to nobody any more."""

    def program(seat: Seat) -> None:
        try:
            report = vacuum(open_coordinated(Address.at(seat, table), limits))
        except (NotCommitted, OutcomeUnknown, Unavailable) as trouble:
            seat.tell("vacuum", table, type(trouble).__name__)
        else:
            seat.tell("vacuum", table, len(report.garbage))

    return program
