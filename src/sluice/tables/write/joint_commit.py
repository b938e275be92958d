"""From the changes of several tables to one commit: what `transactions.commit_change` is to one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...coordinator.commit.committer import Committer
from ...coordinator.commit.joint import naming
from ...coordinator.commit.joint_resolve import CLOSED
from ...coordinator.commit.outcomes import Commit
from ...coordinator.errors import ConcurrentAppendException, ConcurrentModification, LeaseHeld, NotCommitted, Refused
from ...coordinator.leases.queueing_commits import Turn
from ...coordinator.nodes.records import Head
from ...coordinator.rules.intent import Intent
from ...coordinator.rules.rebase import Attempt
from ...coordinator.service.address import Address
from ...coordinator.service.clock import Deadline, Timeout, bounding
from ...storage.errors import InvalidRequest
from ..client.access import Access
from ..client.leasing import await_turn
from .change import Change
from .commit_change import intent_of, prepared, turns_for, written_since
from .footprints import applications_of
from .repeated_writes import done_in_all
from .scopes import scope_of_change

__all__ = ["commit_together", "require_coordinator", "require_one_coordinator"]

_LOOKS_MAX: Final = 8


def require_one_coordinator(accesses: Sequence[Access]) -> None:
    """Raise InvalidRequest unless the tables are kept by one coordinator, below one chroot."""
    places = {each.address.location: _place(each.address.coordinator) for each in accesses}
    if len(set(places.values())) > 1:
        told = ", ".join(f"{location} by {scheme}://{place}{chroot}" for location, (scheme, place, chroot) in sorted(places.items()))
        raise InvalidRequest(
            f"these tables are kept by different coordinators ({told}): one commit needs one order, so put them under one coordinator "
            "and chroot, or commit to them one after the other",
            places=sorted(set(places.values())),
        )


def require_coordinator(access: Access, coordinator: str) -> None:
    """Raise InvalidRequest unless the table is kept by this coordinator, below this chroot."""
    if _place(access.address.coordinator) != _place(coordinator):
        raise InvalidRequest(
            f"{access.address.location} is kept by {Address.parse(access.address.coordinator)}, and the transaction was given "
            f"coordinator={coordinator!r}: leave it out, or give tables of that coordinator",
            location=access.address.location,
            coordinator=coordinator,
        )


def _place(coordinator: str | None) -> tuple[str, str, str]:
    """What tells one tree of tables from another; how a session is kept up does not."""
    address = Address.parse(coordinator)
    chroot = address.chroot if address.scheme == "zk" else ""
    return address.scheme, ",".join(sorted(address.place.split(","))), chroot


def commit_together(
    changes: Sequence[tuple[Access, Change]],
    *,
    ack: str,
    timeout_s: Timeout,
    filing: Callable[[str], object],
) -> Mapping[str, Commit]:
    """Validate, file and see committed in all tables or in none. Raises what `commit_change` raises; conflicts name the table.

    Where a refusal turns out to be none, and after waiting for somebody's lease, it is filed again under a new transaction id,
    which `filing` is told before. What an application's transaction of this number wrote before is not written again: then these
    are the commits, of those tables that were written.
    """
    with bounding(timeout_s, changes[0][0].ours.context.clock) as deadline, Turn() as turn:
        return _committed(changes, ack, deadline, filing, turn)


def _committed(
    changes: Sequence[tuple[Access, Change]], ack: str, deadline: Deadline, filing: Callable[[str], object], turn: Turn
) -> Mapping[str, Commit]:
    committers = _on_one_session([access.ours for access, _ in changes])
    by_location = {access.address.location: (access, change) for access, change in changes}
    lead = committers[0]
    looks = _LOOKS_MAX
    while True:
        looks -= 1
        try:
            seen = {access.address.location: _prepared(access, change, len(changes)) for access, change in changes}
        except ConcurrentModification:
            repeated = _repeated(changes, {access.address.location: access.head() for access, _ in changes}, ack)
            if not repeated:
                raise
            return repeated
        repeated = _repeated(changes, {location: head for location, (_, head) in seen.items()}, ack)
        if repeated:
            return repeated
        intents = {
            access.address.location: _intent(access, change, *seen[access.address.location], len(changes)) for access, change in changes
        }
        try:
            return lead.joints.commit(committers, intents, deadline, ack=ack)
        except LeaseHeld as held:
            access, change = by_location[_table_of(held)]
            await_turn(turn, access, scope_of_change(change), held, deadline, turns_for(change))
            looks += 1
            if not held.filed:
                continue
        except ConcurrentAppendException as appended:
            if not looks or not intents[_table_of(appended)].footprint.compares_rows or deadline.over:
                raise
        except Refused as refused:
            if refused.rule != CLOSED or not looks or deadline.over:
                raise
        another = lead.context.another_transaction_id(changes[0][1].transaction_id)
        filing(another)
        changes = [(access, replace(change, transaction_id=another)) for access, change in changes]


def _prepared(access: Access, change: Change, tables: int) -> tuple[Attempt, Head]:
    with naming(access.address.location):
        return prepared(access, change, tables=tables)


def _repeated(changes: Sequence[tuple[Access, Change]], heads: Mapping[str, Head], ack: str) -> Mapping[str, Commit]:
    """The commits that wrote what the application numbers the same, when a table shows one since it was read."""
    accesses = {access.address.location: access for access, _ in changes}
    for access, change in changes:
        if written_since(access, change, heads[access.address.location], ack) is not None:
            [application] = applications_of(change.actions).items()
            since = {access.address.location: change.snapshot.version if change.snapshot else -1 for access, change in changes}
            return done_in_all(accesses, application, ack, since)
    return {}


def _intent(access: Access, change: Change, attempt: Attempt, head: Head, tables: int) -> Intent:
    with naming(access.address.location):
        return intent_of(access, change, attempt, head, tables=tables)


def _table_of(refusal: NotCommitted) -> str:
    return str(refusal.details["facts"]["table"])


def _on_one_session(committers: Sequence[Committer]) -> list[Committer]:
    """The same committers, all of them speaking through the first one's session."""
    first = committers[0].context
    session = first.coordination
    return [
        each if each.context.coordination is session else Committer(replace(each.context, connect=first.connect, presence=first.presence))
        for each in committers
    ]
