"""Deciding transactions over several tables: what stands before one in each of its tables, then itself on all heads at once.

::

    orders   ... a  b [J] c          a, b are decided first, then d;
    stock    ... d [J] e             then J in both: one multi over both heads, or it is refused in both

Slots that were made together have one zxid, so what stands before a transaction anywhere is older than it: whoever goes from
one to the next comes to an end. Any client may do all of this; a loser of the compare-and-set reads everything again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, Unavailable, invariant
from ..fields import MalformedRecord
from ..nodes.context import TableState
from ..nodes.layout import SlotName, TableTree
from ..nodes.records import NO_SLOT, BatchRecord, Head, Verdict, is_batch, read_intent
from ..rules.intent import Intent
from ..rules.joint_tables import Joint, JointTable
from ..rules.refusal import Refusal
from ..service.clock import Deadline
from ..service.store import ApplyRefused, Node, Op, ReplyLost
from .claims import undecided
from .decision import Decision, Queued
from .failure_points import point
from .joint_resolve import Part, closed, lacks_siblings, refused, resolve_joint
from .queue import WINDOW_VERSIONS_MAX, batch_of, queued_in, ratifying_ops, record_name, with_winners
from .ratified_log import store_objects

if TYPE_CHECKING:
    from .committer import Committer

__all__ = ["JointDecider", "JointSlot", "Neighbours"]

_log = logging.getLogger(__name__)


class Neighbours:
    """One client's committers for the tables of a coordinator, by location. Safe for several threads."""

    def __init__(self, lead: Committer) -> None:
        self._lead = lead
        self._lock = threading.Lock()
        self._known: dict[str, Committer] = {}

    def know(self, committers: Iterable[Committer]) -> None:
        """Go on with these for their tables."""
        with self._lock:
            self._known.update((each.context.tree.location, each) for each in committers if each is not self._lead)

    def at(self, location: str) -> Committer:
        """The committer of a table; its objects are reached as those of the first one are. Raises InvalidRequest and its kinds."""
        lead = self._lead
        if location == lead.context.tree.location:
            return lead
        with self._lock:
            known = self._known.get(location)
            if known is None:
                context = replace(lead.context, objects=lead.context.stores(location), tree=TableTree(location))
                known = self._known[location] = type(lead)(context)
            return known


@dataclass(frozen=True, slots=True)
class JointSlot:
    """One of the slots of a transaction over several tables."""

    location: str
    generation: int
    name: SlotName


@dataclass(frozen=True, slots=True)
class _Front:
    """The queue of a table as it stands."""

    committer: Committer
    state: TableState
    names: Sequence[SlotName]

    @property
    def head(self) -> Head:
        return self.state.head

    @property
    def has_room(self) -> bool:
        """Whether a version more may be ratified before others are published."""
        return self.state.backlog < self.committer.context.limits.backlog_versions_max


@dataclass(frozen=True, slots=True)
class _Share:
    """A transaction's slot in one of its tables."""

    front: _Front
    queued: Queued

    @property
    def is_first(self) -> bool:
        return self.front.names[0].sequence == self.queued.slot


class JointDecider:
    """Decides transactions over several tables for one client. Safe for several threads."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._at = neighbours.at

    def decide(self, slot: JointSlot, deadline: Deadline, *, against: Refusal | None = None) -> None:
        """See this slot decided, and before it whatever has to be; what comes of it is published.

        With `against` it is refused for that, unless somebody else decided it first. Returns when that is done, or when the time is
        over. Raises what reading raises.
        """
        waiting = [slot]
        while waiting:
            before = self._step(waiting[-1], against=against if len(waiting) == 1 else None)
            if before is None:
                waiting.pop()
            elif before != waiting[-1]:
                waiting.append(before)
            if deadline.over:
                return

    def _step(self, slot: JointSlot, *, against: Refusal | None = None, up_to_date: bool = False) -> JointSlot | None:
        """One step towards a decision: None when there is one, another slot that has to be decided first, else the same again."""
        front = self._front(slot.location)
        if front is None or front.head.generation != slot.generation or slot.name not in front.names:
            return None
        context = front.committer.context
        node = context.coordination.read(context.tree.slot(slot.generation, slot.name))
        if node is None:
            return slot
        if front.names[0] != slot.name:
            return self._clear(front) or slot
        intent = self._joint_intent(node, front.head)
        if intent is None or intent.joint is None:  # it is refused where it stands, as what it is
            return self._clear(front) or slot
        shares, problem = self._shares(intent.joint, intent, node)
        if problem is not None and not up_to_date:  # not on the word of a server that is behind
            context.barrier()
            return self._step(slot, against=against, up_to_date=True)
        if problem is not None:
            self._refuse_here(slot, front, intent, problem)
            return slot
        behind = next((share.front for share in shares.values() if not share.is_first), None)
        if behind is not None:
            return self._clear(behind) or slot
        if against is not None:
            self._ratify(intent.joint, {at: replace(each, queued=replace(each.queued, against=against)) for at, each in shares.items()})
            return slot
        full = [share.front for share in shares.values() if not share.front.has_room]
        for each in full:
            each.committer.publisher.publish_pending()
        if not full:
            self._ratify(intent.joint, shares)
        return slot

    def _front(self, location: str) -> _Front | None:
        """The queue of a table; None where the coordinator has no such tree."""
        committer = self._at(location)
        state = committer.context.look()
        return None if state is None else _Front(committer, state, undecided(state.slots, state.head))

    @staticmethod
    def _joint_intent(node: Node, head: Head) -> Intent | None:
        try:
            return read_intent(node.data, head)
        except MalformedRecord:
            return None

    def _clear(self, front: _Front) -> JointSlot | None:
        """Decide what stands at the front of a queue, and publish it; a transaction over several tables is only named."""
        if not front.has_room:
            front.committer.publisher.publish_pending()
            return None
        decided = front.committer.decide(front.state)
        if isinstance(decided, Queued):
            return JointSlot(front.committer.context.tree.location, front.head.generation, SlotName(decided.slot, decided.transaction_id))
        if decided is not None:
            _publish(front, decided)
        return None

    # -- its slots ---------------------------------------------------------------------------------------------------

    def _shares(self, joint: Joint, intent: Intent, origin: Node) -> tuple[dict[str, _Share], Refusal | None]:
        """The transaction's slots in all its tables, or why it can never be committed: what it says of some table is not so.

        That is true as long as it is undecided where it was met, which the compare-and-set there sees to.
        """
        shares: dict[str, _Share] = {}
        for table in joint.tables:
            share = self._share(table, intent, origin)
            if isinstance(share, Refusal):
                return {}, share
            shares[table.location] = share
        return shares, None

    def _share(self, table: JointTable, intent: Intent, origin: Node) -> _Share | Refusal:
        front = self._front(table.location)
        if front is None:
            return lacks_siblings(table.location, "the coordinator has no such table (any more)")
        if front.head.generation > table.generation:
            return closed(table.location)
        context = front.committer.context
        name = next((each for each in front.names if each.transaction_id == intent.transaction_id), None)
        node = None if name is None else context.coordination.read(context.tree.slot(front.head.generation, name))
        told = None if node is not None else front.committer.verdicts.refusal_of(intent.transaction_id)
        if told is not None:
            return told
        if name is None or node is None or node.created_zxid != origin.created_zxid:
            return lacks_siblings(table.location, "it has no slot there that was made together with the others")
        theirs = self._joint_intent(node, front.head)
        if theirs is None or theirs.transaction_id != intent.transaction_id or theirs.joint != intent.joint:
            return lacks_siblings(table.location, "its slot there says something else")
        return _Share(front, queued_in(context, name, node, front.head))

    def _refuse_here(self, slot: JointSlot, front: _Front, intent: Intent, problem: Refusal) -> None:
        """Refuse a transaction in the table where it was met. Elsewhere it cannot be committed any more, for that needs this slot.

        It may be committed already: then it was filed again, after a lost reply, and it is these slots that came too late.
        """
        queued = Queued(slot.name.sequence, slot.name.transaction_id, None)
        decision = refused(front.head, queued, front.committer.context.limits, problem)
        before = self._committed_before(front, intent) if intent.filed_again else None
        if before is not None:
            decision = replace(decision, verdicts=(replace(before, slot=slot.name.sequence),))
        _log.info("transaction %s is not decided in %s: %s", slot.name.transaction_id, slot.location, problem.message)
        self._record({slot.location: _Share(front, queued)}, {slot.location: decision}, ())

    def _committed_before(self, front: _Front, intent: Intent) -> Verdict | None:
        """That a transaction was committed from other slots. A table that it only reads may not tell any more; the others do."""
        here = front.committer.context.tree.location
        assert intent.joint is not None
        for location in intent.joint.locations if intent.only_reads else (here,):
            committer = self._at(location)
            state = committer.context.read_published()
            oldest = -1 if state is None else max(-1, state[0].version - WINDOW_VERSIONS_MAX)
            after = max(oldest, intent.validated_through) if location == here else oldest
            found = committer.context.up_to_date(partial(committer.verdicts.search, intent.transaction_id, after=after)).commit
            if found is not None:
                place = (found.version, found.ordinal) if location == here else (front.head.version, -1)
                return Verdict(NO_SLOT, intent.transaction_id, *place, repeats=True)
        return None

    # -- on all heads at once ----------------------------------------------------------------------------------------

    def _ratify(self, joint: Joint, shares: Mapping[str, _Share]) -> None:
        """Decide a transaction that is the first in all its tables, with ONE multi over all heads (I11)."""
        parts = {location: _part(share) for location, share in shares.items()}
        decisions = resolve_joint(parts)
        committed = {location for location, decision in decisions.items() if decision.verdicts[0].refusal is None}
        invariant("I11", committed in (set(), set(joint.locations)), f"of {joint.locations} only {sorted(committed)} would be committed")
        checks: list[Op] = []
        for location, decision in decisions.items():
            store_objects(shares[location].front.committer.context, decision.objects)
            checks += parts[location].leases.checks(
                (member.intent for members in decision.members.values() for member in members),
                (verdict.refusal for verdict in decision.verdicts if verdict.refusal is not None),
            )
        self._record(shares, decisions, checks)

    def _record(self, shares: Mapping[str, _Share], decisions: Mapping[str, Decision], checks: Sequence[Op]) -> None:
        """Record decisions on the heads they were made on, all of them or none, and publish what they come to."""
        lead = next(iter(shares.values())).front.committer.context
        by, batch_id = lead.rendering(), uuid.uuid4().hex
        batches = {at: batch_of(decisions[at], share.front.head, by, batch_id) for at, share in shares.items()}
        ops: list[Op] = []
        for location, share in shares.items():
            record, front = batches[location][0], share.front
            name = record_name(record, front.head)
            ops += ratifying_ops(front.committer.context, decisions[location].head, front.state.head_node, name, record)
        ops += checks
        for share in shares.values():
            ops += share.front.committer.context.standing()
        first, front = batches[next(iter(shares))][0], next(iter(shares.values())).front
        point("before-ratify")
        try:
            lead.coordination.apply(ops)
        except ApplyRefused as refusal:  # another client decided something first, or a lease came or went: read again
            for share in shares.values():
                share.front.committer.leases.was_outdated(refusal, ops)
                share.front.committer.context.recognise_again(getattr(refusal.cause, "path", ""))
            return
        except ReplyLost:
            lead.coordination.barrier()
            node = lead.coordination.read(lead.tree.verdict(record_name(first, front.head)))
            if node is None or not is_batch(node.data, batch_id):
                return
        point("after-ratify")
        for location, (record, contents) in batches.items():
            for version, content in contents.items():
                shares[location].front.committer.log.remember(version, content)
            _publish(shares[location].front, record)


def _part(share: _Share) -> Part:
    """What to decide a transaction's share in a table by."""
    front, queued = share.front, share.queued
    committer = front.committer
    [queued], winners = with_winners(committer.log, front.head, [queued])
    leases = committer.leases.view(() if queued.member is None else (queued.member.intent,))
    return Part(front.head, queued, winners, committer.context.limits, committer.log.rows, leases)


def _publish(front: _Front, record: BatchRecord) -> None:
    """Publish a batch that was ratified here; trouble with that is left to who waits for it (I12)."""
    try:
        front.committer.publish(front.state, record)
    except (Unavailable, InvalidRequest) as trouble:
        _log.info("versions of %s wait to be published: %s", front.committer.context.tree.location, trouble)
