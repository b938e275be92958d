"""Decides the first transaction in a table's queue; one over several tables must be first in all of them.

::

    orders   ... a  b [J] c          a, b are decided first, then d;
    stock    ... d [J] e             then J in both: one multi over both heads, or it is refused in both

Slots made together have one zxid, so everything that precedes a transaction in any table is older: a walk from table to
table ends. Any client may do all of this; one that loses the compare-and-set reads everything again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from ...storage.dataclass import dataclass
from ...storage.errors import invariant
from ..formats import MalformedRecord
from ..nodes.context import TableState
from ..nodes.layout import SlotName
from ..nodes.records import NO_SLOT, Head, Verdict, read_intent
from ..rules.intent import Intent, Joint
from ..rules.refusal import Refusal
from ..rules.winner import Member
from ..service.store import Check, Node
from .decision import Decision, DecisionInput, Queued, resolve
from .joint_resolve import lacks_siblings, refused, resolve_joint
from .queue import WINDOW_VERSIONS_MAX, queued_in, read_queue, undecided, with_winners
from .ratification import Batch, Ratified, batches_of, ratify
from .table import CoordinatedTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue of a table as of one look."""

    table: CoordinatedTable
    """The table, as this client reaches it."""
    state: TableState
    """What the look showed."""
    queue: Sequence[Queued] = ()
    """The undecided slots that were read since, in order."""

    @property
    def head(self) -> Head:
        """The state that the queue is decided on."""
        return self.state.head

    @property
    def names(self) -> Sequence[SlotName]:
        """The undecided slots, in order."""
        return undecided(self.state.slots, self.state.head)

    @property
    def room(self) -> int:
        """How many more versions may be ratified before others are published."""
        return self.table.context.limits.backlog_versions_max - self.state.backlog

    @property
    def begins_with_it(self) -> bool:
        """Whether the first slot that was read is the first undecided one."""
        return self.names[0].sequence == self.queue[0].slot

    def input(self) -> DecisionInput:
        """The slots that were read, with the versions and leases that decide them."""
        table = self.table
        queue, winners = with_winners(table.log, self.head, self.queue)
        leases = table.guard.view(each.member.intent for each in queue if each.member is not None)
        return DecisionInput(self.head, queue, winners, table.context.limits, table.log.rows, leases)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Why the owner of an undecided transaction wants it refused."""

    transaction_id: str
    refusal: Refusal

    def on(self, queued: Queued) -> Queued:
        """The slot, to be refused if it is that transaction's."""
        # check: taken-back-alone (queued.transaction_id == self.transaction_id -> True)
        return replace(queued, against=self.refusal) if queued.transaction_id == self.transaction_id else queued


class Decider:
    """Decides for one client. Thread-safe."""

    def __init__(self, table: CoordinatedTable) -> None:
        """Reaches other tables like this one."""
        self._at = table.beside

    def decide(self, view: QueueView, withdrawal: Withdrawal | None = None) -> Sequence[Batch]:
        """Decide what is first in a table's queue, or in another table what that waits for; returns the ratified batches.

        None are ratified if there was nothing to do, another client was faster, or too much awaits publication in a table.
        Raises errors of reading.
        """
        up_to_date = False
        current: QueueView | None = view
        while current is not None:
            current = replace(current, queue=read_queue(current.table.context, current.state))
            if not current.queue:
                return ()
            if current.queue[0].joint is None:
                done, batches = self._decide_alone(current, withdrawal)
            else:
                shares = self._shares(current, current.queue[0])
                # check: not-refused-by-who-is-behind
                if isinstance(shares, Refusal) and not up_to_date:  # never based on a lagging server
                    current.table.context.barrier()
                    current, up_to_date = self._view_of(current.table.location), True
                    continue
                if not isinstance(shares, Refusal):
                    # check: what-stands-before-is-decided-before (in shares -> in ())
                    behind = next((share for share in shares if not share.begins_with_it), None)
                    if behind is not None:
                        current, up_to_date = behind, False
                        continue
                done, batches = self._decide_jointly(current, shares, withdrawal)
            if done is not Ratified.LEASES_MOVED:
                return batches if done is Ratified.DONE else ()
            current = self._view_of(current.table.location)
        return ()

    def decide_without_slot(self, table: CoordinatedTable, member: Member) -> tuple[Ratified, Sequence[Batch]]:
        """The fast path: if the queue is empty, one multi writes an intent and its verdict, in one round trip.

        The record contains the intent, instead of a slot. Decision and compare-and-set are the same as for every other
        transaction; if anything is in its way (a waiting slot, a publication in progress, a faster client, a conflict),
        nothing is written, and the transaction claims a slot. One such commit may overtake a slot created after the look at
        the queue; a client that sees the slot does not overtake it again.
        """
        intent = member.intent
        if intent.staged:
            return Ratified.OVERTAKEN, ()
        state = table.context.cached_state()
        # check: fast-path-when-idle (without not state.is_published or)
        if state is None or not state.is_published or state.head.slot + 1 >= table.context.limits.generation_slots_max:
            return Ratified.OVERTAKEN, ()
        # check: who-waits-is-not-passed
        if undecided(state.slots, state.head):
            return Ratified.OVERTAKEN, ()
        decision_input = QueueView(table, state, [Queued(NO_SLOT, intent.transaction_id, member)]).input()
        decision = resolve(decision_input, room=1)
        if len(decision.versions) != 1:  # a refusal or a repetition: the queue records its verdict
            return Ratified.OVERTAKEN, ()
        batches = batches_of([(table, state, decision)], direct=intent)
        return ratify(batches, decision_input.leases.checks((intent,), ()), intent.transaction_id), batches

    def _view_of(self, location: str) -> QueueView | None:
        """The queue of a table; None if the coordinator has no such tree."""
        table = self._at(location)
        state = table.context.look()
        return None if state is None else QueueView(table, state)

    # -- one table ---------------------------------------------------------------------------------------------------

    def _decide_alone(self, view: QueueView, withdrawal: Withdrawal | None) -> tuple[Ratified, Sequence[Batch]]:
        """Decide the queue up to the first transaction over several tables."""
        if view.room <= 0:
            view.table.publisher.publish_pending()
            return Ratified.OVERTAKEN, ()
        # check: the-queue-ends-before-it (takewhile -> filter)
        queue = list(takewhile(lambda each: each.joint is None, view.queue))
        if withdrawal is not None:
            queue = [withdrawal.on(each) for each in queue]
        decision_input = replace(view, queue=queue).input()
        decision = resolve(decision_input, room=view.room)
        if not decision.verdicts:
            return Ratified.OVERTAKEN, ()
        batches = batches_of([(view.table, view.state, decision)])
        return ratify(batches, _checks(decision_input, decision)), batches

    # -- several tables ----------------------------------------------------------------------------------------------

    def _decide_jointly(
        self, view: QueueView, shares: Sequence[QueueView] | Refusal, withdrawal: Withdrawal | None
    ) -> tuple[Ratified, Sequence[Batch]]:
        """Decide a transaction that is first in all of its tables; or refuse it here if its slots differ from what it says."""
        queued = view.queue[0]
        if isinstance(shares, Refusal):
            return self._refuse_here(view, queued, shares)
        withdrawn = withdrawal is not None and withdrawal.transaction_id == queued.transaction_id
        full = [share for share in shares if share.room <= 0]
        # check: others-backlog-is-kept-to
        if full and not withdrawn:
            for each in full:
                each.table.publisher.publish_pending()
            return Ratified.OVERTAKEN, ()
        if withdrawal is not None:
            shares = [replace(share, queue=[withdrawal.on(each) for each in share.queue]) for share in shares]
        parts = {share.table.location: share.input() for share in shares}
        decisions = resolve_joint(parts)
        committed = {location for location, decision in decisions.items() if decision.verdicts[0].refusal is None}
        # check: all-tables-or-none
        invariant("I11", committed in (set(), set(parts)), f"of {sorted(parts)} only {sorted(committed)} would be committed")
        views = {share.table.location: share for share in shares}
        batches = batches_of([(views[at].table, views[at].state, decision) for at, decision in decisions.items()])
        return ratify(batches, [check for at, decision in decisions.items() for check in _checks(parts[at], decision)]), batches

    def _shares(self, view: QueueView, queued: Queued) -> Sequence[QueueView] | Refusal:
        """The queues of its tables, of which its slot was read, or why it can never be committed: it names a table wrongly.

        That holds as long as it is undecided where it was met, which the compare-and-set there ensures.
        """
        assert queued.member is not None
        assert queued.joint is not None
        context = view.table.context
        name = SlotName(queued.slot, queued.transaction_id)
        origin = context.coordination.read(context.tree.slot(view.head.generation, name))
        if origin is None:
            return lacks_siblings(view.table.location, "its slot is gone")
        shares: list[QueueView] = []
        for location in queued.joint.tables:
            share = self._share(location, queued.transaction_id, queued.joint, origin)
            if isinstance(share, Refusal):
                return share
            shares.append(share)
        return shares

    def _share(self, location: str, transaction_id: str, joint: Joint, origin: Node) -> QueueView | Refusal:
        view = self._view_of(location)
        if view is None:
            return lacks_siblings(location, "the coordinator has no such table (any more)")
        context = view.table.context
        name = next((each for each in view.names if each.transaction_id == transaction_id), None)
        node = None if name is None else context.coordination.read(context.tree.slot(view.head.generation, name))
        recorded = None if node is not None else view.table.verdicts.refusal_of(transaction_id)
        if recorded is not None:
            return recorded
        # check: siblings-were-made-together (without or node.created_zxid != origin.created_zxid)
        if name is None or node is None or node.created_zxid != origin.created_zxid:
            return lacks_siblings(location, "it has no slot there that was made together with the others")
        theirs = _readable_intent(node, view.head)
        # check: siblings-say-the-same (without or theirs.joint != joint)
        if theirs is None or theirs.transaction_id != transaction_id or theirs.joint != joint:
            return lacks_siblings(location, "its slot there says something else")
        return replace(view, queue=[queued_in(context, name, node, view.head)])

    def _refuse_here(self, view: QueueView, queued: Queued, problem: Refusal) -> tuple[Ratified, Sequence[Batch]]:
        """Refuse a transaction in the table where it was met. That also prevents its commit elsewhere, which would need this slot.

        It may be committed already: then it was filed again, after a lost reply.
        """
        assert queued.member is not None
        intent = queued.member.intent
        decision = refused(view.head, replace(queued, member=None), view.table.context.limits, problem)
        before = self._committed_before(view, intent) if intent.filed_again else None
        # check: too-late-the-second-time
        if before is not None:
            decision = replace(decision, verdicts=(replace(before, slot=queued.slot),))
        _log.info("transaction %s is not decided in %s: %s", queued.transaction_id, view.table.location, problem.message)
        batches = batches_of([(view.table, view.state, decision)])
        return ratify(batches, ()), batches

    def _committed_before(self, view: QueueView, intent: Intent) -> Verdict | None:
        """The verdict of a transaction that was committed from other slots.

        A table that it only reads may have no record; the others do.
        """
        here = view.table.location
        assert intent.joint is not None
        for location in intent.joint.tables if intent.only_reads else (here,):
            table = self._at(location)
            state = table.context.read_published()
            oldest = -1 if state is None else max(-1, state[0].version - WINDOW_VERSIONS_MAX)
            after = max(oldest, intent.validated_through) if location == here else oldest
            found = table.context.up_to_date(partial(table.verdicts.search, intent.transaction_id, after=after)).commit
            if found is not None:
                place = (found.version, found.ordinal) if location == here else (view.head.version, -1)
                return Verdict(NO_SLOT, intent.transaction_id, *place, repeats=True)
        return None


def _readable_intent(node: Node, head: Head) -> Intent | None:
    try:
        return read_intent(node.data, head)
    except MalformedRecord:
        return None


def _checks(decision_input: DecisionInput, decision: Decision) -> list[Check]:
    """The checks of leases with which a decision is ratified (I9)."""
    members: Iterable[Member] = (member for members in decision.members.values() for member in members)
    refusals = (verdict.refusal for verdict in decision.verdicts if verdict.refusal is not None)
    return decision_input.leases.checks((member.intent for member in members), refusals)
