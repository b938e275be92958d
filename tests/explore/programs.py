"""What the clients of small worlds do, by sluice's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from sluice.storage.actions import Action, AddFile, RemoveFile, encode_all
from sluice.storage.actions.texts import sha256
from sluice.storage.errors import Unavailable

from ..coordinator.world import commit_one
from .seat import Seat

__all__ = [
    "TIME_S",
    "Program",
    "added",
    "append_intent",
    "appender",
    "asker",
    "context_of",
    "coordinated_of",
    "deleter",
    "head_of",
    "intent_of",
    "publisher",
    "settler",
    "telling",
]

Program = Callable[[Seat], object]

TIME_S = 60.0


def context_of(seat: Seat, table: str, limits: Limits | None = None, **more: Any) -> TableContext:
    """A table as a client sees it."""
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
    """A client's object for a table."""
    return CoordinatedTable(context or context_of(seat, table, limits))


def head_of(coordinated: CoordinatedTable) -> Head:
    """The head as this client sees it."""
    state = coordinated.context.read_head()
    assert state is not None
    return state[0]


def intent_of(context: TableContext, head: Head, actions: Sequence[Action], reads: DeclaredReads, **changes: Any) -> Intent:
    """A transaction made on a head."""
    text = encode_all(actions)
    made = Intent(
        transaction_id=context.new_transaction_id(),
        operation="WRITE",
        read_version=head.version,
        validated_through=head.version,
        claimed_ms=context.clock.now_ms(),
        reads=reads,
        actions=text.decode(),
        actions_digest=sha256(text),
        client=context.client,
    )
    return replace(made, **changes)


def added(path: str) -> AddFile:
    """A data file of one row."""
    return AddFile(path, {}, 1, 1, True, stats='{"numRecords":1}')


def append_intent(context: TableContext, head: Head, path: str, **changes: Any) -> Intent:
    """A blind append of one file."""
    return intent_of(context, head, [added(path)], DeclaredReads(nothing=True), **changes)


def telling(seat: Seat, table: str, transaction_id: str, commit: Callable[[], Commit]) -> Commit | None:
    """Do it, and note what the caller was told."""
    try:
        done = commit()
    except OutcomeUnknown:
        seat.tell("unknown", table, transaction_id)
    except NotCommitted as refused:
        seat.tell("refused", table, transaction_id, str(refused.details.get("rule", type(refused).__name__)))
    except Unavailable as trouble:
        seat.tell("failed", table, transaction_id, type(trouble).__name__)
    else:
        seat.tell("committed", table, done.transaction_id, done.version, done.ordinal, done.repeated)
        return done
    return None


def appender(table: str, *paths: str, limits: Limits | None = None, ack: str = "published") -> Program:
    """Appends files one after the other, blindly."""

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table, limits)
        for path in paths:
            head = head_of(coordinated)
            intent = append_intent(coordinated.context, head, path)
            deadline = Deadline.after(TIME_S, seat)
            telling(seat, table, intent.transaction_id, lambda: commit_one(coordinated, intent, head, deadline, ack=ack))  # noqa: B023

    return program


def deleter(table: str, old: str, new: str, limits: Limits | None = None) -> Program:
    """Replaces one file of version 0 by another, having read it there."""

    def program(seat: Seat) -> None:
        coordinated = coordinated_of(seat, table, limits)
        head = head_of(coordinated)
        actions: list[Action] = [RemoveFile(old, True, deletion_timestamp=1), added(new)]
        intent = intent_of(
            coordinated.context,
            replace(head, version=0),
            actions,
            DeclaredReads(read_files=(old,), partition_types={"p": "string"}),
        )
        telling(seat, table, intent.transaction_id, lambda: commit_one(coordinated, intent, head, Deadline.after(TIME_S, seat)))

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
