"""What garbage collection has to keep: versions that are needed, and the files of transactions that may still be committed."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from ..errors import SessionLost
from ..formats import MalformedRecord
from ..leases.pins import pinned_versions
from ..nodes.context import TableContext, undecided
from ..nodes.layout import GRAVES, SlotName, newest_first
from ..nodes.plans import close_owner, open_plans
from ..nodes.presence import ClientNode, Owner, bury, owner_of
from ..nodes.records import BatchRecord, read_intent, root_field
from ..service.store import CoordinationStore
from .table import CoordinatedTable

_SESSIONS_MAX: Final = 5
FOLLOWING_MS: Final = 7 * 24 * 3600 * 1000
"""How long clients of the former coordinator have to follow a table that moved: the default retention of replaced files."""


def needed_versions(context: TableContext) -> Iterator[int]:
    """Versions before which nothing else of the log is needed: pinned, published, and known to undecided transactions."""
    yield from pinned_versions(context)
    state = context.look()
    if state is None:
        yield -1
        return
    yield state.published.version
    head = state.head
    for node in context.coordination.read_many([context.tree.slot(head.generation, name) for name in undecided(state.slots, head)]):
        if node is None:
            continue
        try:
            # check: the-log-of-undecided-transactions-is-kept (yield -> yield from () and)
            yield read_intent(node.data, head).validated_through
        except MalformedRecord:
            continue


def gone_and_busy(
    table: CoordinatedTable, owners: AbstractSet[Owner], plans_before_ms: int, *, dry_run: bool
) -> tuple[dict[Owner, int | None], frozenset[Owner]]:
    """The owners that are gone (with the term from which on they are not), and all owners that are busy.

    A transaction of an owner that is gone is never filed any more; a busy owner has one that is filed but not published yet. They are
    looked up in this order, in one session, whose view never goes back; it starts again if the session expires. Unless it is a dry run,
    plans made before `plans_before_ms` are closed, and absent clients are buried: not in the first days after the table came from another
    coordinator, where they may be present still.
    """
    context = table.context
    for attempt in range(_SESSIONS_MAX):
        session = context.coordination
        try:
            session.barrier()
            # check: busy-is-asked-after-gone (after the next)
            gone = _gone(context, session, owners, plans_before_ms, dry_run=dry_run)
            busy = _busy(context, session)
            return gone, busy
        except SessionLost:
            if attempt == _SESSIONS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _gone(
    context: TableContext, session: CoordinationStore, owners: AbstractSet[Owner], plans_before_ms: int, *, dry_run: bool
) -> dict[Owner, int | None]:
    old_plans = {owner for owner, plan in open_plans(context) if plan.since_ms < plans_before_ms}
    # check: looking-only-closes-no-plan (without () if dry_run else)
    for owner in () if dry_run else old_plans:
        close_owner(session, owner)
    ordered, now_ms = sorted(owners), context.clock.now_ms()
    root, *there = session.read_many([context.tree.root, *[owner.path for owner in ordered]])
    arrived_ms = None if root is None else root_field(root, "arrived_ms")
    graves = session.read_many([f"{GRAVES}/{owner.name}" for owner in ordered])
    gone: dict[Owner, int | None] = {}
    # of this tree: who writes where the table went is absent here, and another table may take the grave along
    here = context.liveness_checks()[:1]
    for owner, node, grave in zip(ordered, there, graves, strict=True):
        if not owner.is_client:
            # check: open-plans-are-kept (always)
            if node is None or owner in old_plans:
                gone[owner] = None
        elif grave is not None:
            gone[owner] = None
        elif node is not None:
            gone[owner] = ClientNode.decode(node.data).oldest_term
        # check: who-has-not-followed-is-not-buried
        elif arrived_ms is not None and now_ms - arrived_ms < FOLLOWING_MS:
            continue
        # check: looking-only-buries-nobody (without dry_run or)
        # check: nobody-is-buried-where-the-table-was (without , while_standing=here)
        elif dry_run or bury(session, owner, by=context.client.application, now_ms=now_ms, while_standing=here):
            gone[owner] = None
    return gone


def _busy(context: TableContext, session: CoordinationStore) -> frozenset[Owner]:
    """The owners with a transaction that is filed but not published: an undecided slot, or a verdict beyond `published`."""
    tree = context.tree
    ids: set[str] = set()
    looked_at: set[str] = set()
    while unseen := set(session.children(tree.generations) or ()) - looked_at:
        for generation in unseen:  # until there is no other: the next one may be opened meanwhile
            slots = map(SlotName.parse, session.children(f"{tree.generations}/{generation}") or ())
            # check: filed-is-kept
            ids.update(slot.transaction_id for slot in slots if slot is not None)
        looked_at |= unseen
    names = newest_first(session.children(tree.verdicts) or ())
    state = context.read_published()
    reached = (-1, -1, -1) if state is None else (state[0].generation, state[0].slot, state[0].version)
    pending = [tree.verdict(name) for name in names if (name.generation, name.slot, name.version) > reached]
    for node in session.read_many(pending):
        if node is not None:
            # check: ratified-is-kept
            ids.update(verdict.transaction_id for verdict in BatchRecord.decode(node.data).verdicts)
    return frozenset(owner for each in ids if (owner := owner_of(each)) is not None)
