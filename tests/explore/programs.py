"""What the clients of small worlds do, by sluice's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sluice.coordinator.commit.outcomes import Commit, Outcome
from sluice.coordinator.commit.table import CoordinatedTable
from sluice.coordinator.commit.transactions import outcome_of, settle_queue
from sluice.coordinator.errors import NotCommitted, OutcomeUnknown
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules.intent import ClientName, DeclaredReads, Intent
from sluice.coordinator.service.clock import Deadline
from sluice.storage.actions import Action, AddFile, RemoveFile
from sluice.storage.errors import Unavailable

from ..coordinator import world
from .seat import Seat

Program = Callable[[Seat], object]

TIME_S = 60.0


def context_of(seat: Seat, table: str, limits: Limits | None = None, **more: Any) -> TableContext:
    client = ClientName("small", seat.actor.index, seat.name)
    return TableContext(
        seat.store(table),
        TableTree(table),
        seat.connect,
        seat,
        limits or seat.limits,
        client,
        stores=seat.store,
        coordinator="memory://small",
        **more,
    )


def coordinated_of(seat: Seat, table: str, limits: Limits | None = None, *, context: TableContext | None = None) -> CoordinatedTable:
    return CoordinatedTable(context or context_of(seat, table, limits))


def head_of(coordinated: CoordinatedTable) -> Head:
    state = coordinated.context.read_head()
    assert state is not None
    return state[0]


def intent_of(context: TableContext, head: Head, actions: Sequence[Action], reads: DeclaredReads, **changes: Any) -> Intent:
    own = {"transaction_id": context.new_transaction_id(), "claimed_ms": context.clock.now_ms(), "client": context.client}
    return world.intent_of(head, actions, reads, {**own, **changes})


def added(path: str) -> AddFile:
    """A data file of one row."""
    return AddFile(path, {}, 1, 1, True, stats='{"numRecords":1}')


def append_intent(context: TableContext, head: Head, path: str, **changes: Any) -> Intent:
    return intent_of(context, head, [added(path)], DeclaredReads(nothing=True), **changes)


def telling(seat: Seat, tables: Sequence[str], transaction_id: str, commit: Callable[[], Mapping[str, Commit]]) -> None:
    """Commit to these tables, and note the answer that the caller gets."""
    try:
        commits = commit()
    except OutcomeUnknown:
        seat.tell("unknown", tables[0], transaction_id)
    except NotCommitted as refused:
        for table in tables:
            seat.tell("refused", table, transaction_id, str(refused.details.get("rule", type(refused).__name__)))
    except Unavailable as trouble:
        seat.tell("failed", tables[0], transaction_id, type(trouble).__name__)
    else:
        for table, done in commits.items():
            seat.tell("committed", table, done.transaction_id, done.version, done.ordinal, done.repeated)


def commit_here(seat: Seat, coordinated: CoordinatedTable, intent: Intent, head: Head, *, ack: str = "published") -> None:
    """Commit to one table, and note the answer that the caller gets."""
    table, deadline = coordinated.location, Deadline.after(TIME_S, seat)
    telling(seat, [table], intent.transaction_id, lambda: {table: world.commit_one(coordinated, intent, head, deadline, ack=ack)})


def appender(table: str, *paths: str, limits: Limits | None = None, ack: str = "published") -> Program:
    """Appends files one after the other, blindly."""

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table, limits)
        for path in paths:
            head = head_of(coordinated)
            commit_here(seat, coordinated, append_intent(coordinated.context, head, path), head, ack=ack)

    return program


def deleter(table: str, old: str, new: str, limits: Limits | None = None) -> Program:
    """Replaces one file of version 0 by another, having read it there."""

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table, limits)
        head = head_of(coordinated)
        actions: list[Action] = [RemoveFile(old, True, deletion_timestamp=1), added(new)]
        intent = intent_of(
            coordinated.context, replace(head, version=0), actions, DeclaredReads(read_files=(old,), partition_types={"p": "string"})
        )
        commit_here(seat, coordinated, intent, head)

    return program


def settler(table: str, limits: Limits | None = None) -> Program:
    """Decides everything that is queued, whichever client filed it."""

    def program(seat: Seat) -> None:
        try:
            settle_queue(coordinated_of(seat, table, limits), Deadline.after(TIME_S, seat))
        except (OutcomeUnknown, Unavailable) as trouble:
            seat.tell("settling", table, type(trouble).__name__)

    return program


def publisher(table: str, times: int = 1, limits: Limits | None = None) -> Program:
    """Publishes what is ratified, as any client may at any time."""

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table, limits)
        for _ in range(times):
            try:
                coordinated.publisher.publish_pending()
            except Unavailable as trouble:
                seat.tell("publishing", table, type(trouble).__name__)

    return program


def asker(filed: Sequence[tuple[str, str]], tables: Sequence[str]) -> Program:
    """Asks what became of these transactions, each in its table, and sees everything published."""

    def program(seat: Seat) -> None:
        tables_here = {table: coordinated_of(seat, table) for table in tables}
        for table, transaction in filed:
            outcome: Outcome = outcome_of(tables_here[table], transaction, Deadline.after(TIME_S, seat))
            repeated = outcome.commit is not None and outcome.commit.repeated
            seat.tell("asked", table, transaction, "repeated" if repeated else outcome.state)
        for coordinated in tables_here.values():
            coordinated.publisher.publish_pending()

    return program
