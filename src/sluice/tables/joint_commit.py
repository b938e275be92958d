"""From the changes of several tables to one commit: what `transactions.commit_change` is to one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..coordinator.address import Address
from ..coordinator.clock import Deadline, Timeout, bounding
from ..coordinator.committer import Committer
from ..coordinator.errors import ConcurrentAppendException, LeaseHeld, NotCommitted, Refused
from ..coordinator.joint import naming
from ..coordinator.joint_resolve import CLOSED
from ..coordinator.outcomes import Commit
from ..coordinator.records import Intent
from ..storage.errors import InvalidRequest
from .access import Access
from .locking import await_lease
from .transactions import Change, intent_of, prepared

__all__ = ["commit_together", "require_one_coordinator"]

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
    which `filing` is told before.
    """
    with bounding(timeout_s, changes[0][0].ours.context.clock) as deadline:
        return _committed(changes, ack, deadline, filing)


def _committed(
    changes: Sequence[tuple[Access, Change]], ack: str, deadline: Deadline, filing: Callable[[str], object]
) -> Mapping[str, Commit]:
    committers = _on_one_session([access.ours for access, _ in changes])
    by_location = {access.address.location: access for access, _ in changes}
    lead = committers[0]
    looks = _LOOKS_MAX
    while True:
        looks -= 1
        intents = {access.address.location: _intent(access, change, len(changes)) for access, change in changes}
        try:
            return lead.joints.commit(committers, intents, deadline, ack=ack)
        except LeaseHeld as held:
            await_lease(by_location[_table_of(held)], held, deadline)
            looks += 1
            if not held.filed:
                continue
        except ConcurrentAppendException as appended:
            if not looks or not intents[_table_of(appended)].footprint.row_level or deadline.over:
                raise
        except Refused as refused:
            if refused.rule != CLOSED or not looks or deadline.over:
                raise
        another = lead.context.another_transaction_id(changes[0][1].transaction_id)
        filing(another)
        changes = [(access, replace(change, transaction_id=another)) for access, change in changes]


def _intent(access: Access, change: Change, tables: int) -> Intent:
    with naming(access.address.location):
        attempt, head = prepared(access, change, tables=tables)
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
