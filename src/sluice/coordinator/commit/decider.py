"""Decides the first transaction in a table's queue, and ratifies it; one over several tables must be first in all of them.

::

    orders   ... a  b [J] c          a, b are decided first, then d;
    stock    ... d [J] e             then J in both: one multi over both heads, or it is refused in both

Slots made together have one zxid, so everything that precedes a transaction in any table is older: a walk from table to
table ends. Any client may do all of this; one that loses the compare-and-set reads everything again.

To ratify is to record decisions on the heads they were computed from, in one multi: in all tables or in none (I1, I11).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from itertools import takewhile

from ...storage.actions.chain import files_after
from ...storage.actions.texts import Text, concatenated, sha256
from ...storage.dataclass import dataclass
from ...storage.errors import invariant
from ...storage.observing import observed
from ..formats import MalformedRecord
from ..nodes.context import TableState, undecided
from ..nodes.layout import SlotName, VerdictName
from ..nodes.records import NO_SLOT, BatchRecord, Rendering, Verdict, VersionPlan, is_batch, read_intent
from ..publication.failure_points import point
from ..publication.ratified_log import store_objects
from ..publication.rendering import render
from ..rules.intent import Intent
from ..rules.refusal import Refusal
from ..rules.winner import Member
from ..service.store import ApplyRefused, Check, Create, Op, ReplyLost, Write
from .decision import Decision, DecisionInput, Queued, lacks_siblings, refused, resolve, resolve_joint
from .queue import WINDOW_VERSIONS_MAX, queued_in, read_queue, with_winners
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
    def room(self) -> int:
        """How many more versions may be ratified before others are published."""
        return self.table.context.limits.backlog_versions_max - self.state.backlog

    def input(self) -> DecisionInput:
        """The slots that were read, with the versions and leases that decide them."""
        table, head = self.table, self.state.head
        queue, winners = with_winners(table.log, head, self.queue)
        leases = table.guard.view([each.member.intent for each in queue if each.member is not None])
        return DecisionInput(head, queue, winners, table.context.limits, table.log.rows, leases)


@observed("decisions", decide="decide")
class Decider:
    """Decides for one client. Thread-safe."""

    def __init__(self, table: CoordinatedTable, own: Mapping[str, Member] | None = None) -> None:
        """Reaches other tables like this one; `own` are the plain appends that its client files, by the locations of their tables."""
        self._at = table.beside
        self._own = own or {}

    def decide(self, view: QueueView, withdrawn: str | None = None) -> Sequence[Batch]:
        """Decide what is first in a table's queue, or in another table what that waits for; returns the ratified batches.

        None are ratified if there was nothing to do, another client was faster, or too much awaits publication in a table. `withdrawn` is
        the id of a transaction whose owner wants it refused if it is undecided. Raises errors of reading.
        """
        up_to_date = False
        current: QueueView | None = view
        while current is not None:
            table = current.table
            current = replace(current, queue=read_queue(table.context, current.state, withdrawn, self._own.get(table.location)))
            if not current.queue:
                return ()
            if current.queue[0].joint is None:
                done, batches = self._decide_alone(current)
            else:
                shares = self._shares(current, withdrawn)
                if isinstance(shares, Refusal):
                    # check: not-refused-by-who-is-behind
                    if not up_to_date:  # never based on a lagging server
                        current.table.context.barrier()
                        current, up_to_date = self._view_of(current.table.location), True
                        continue
                    done, batches = self._refuse_here(current, shares)
                else:
                    # check: what-stands-before-is-decided-before (in shares -> in ())
                    behind = [each for each in shares if each.queue[0].slot != undecided(each.state.slots, each.state.head)[0].sequence]
                    if behind:
                        current, up_to_date = behind[0], False
                        continue
                    done, batches = self._decide_jointly(shares)
            if done is not Ratified.LEASES_MOVED:
                return batches if done is Ratified.DONE else ()
            current = self._view_of(current.table.location)
        return ()

    def _view_of(self, location: str) -> QueueView | None:
        """The queue of a table; None if the coordinator has no such tree."""
        table = self._at(location)
        state = table.context.look()
        return None if state is None else QueueView(table, state)

    def _decide_alone(self, view: QueueView) -> tuple[Ratified, Sequence[Batch]]:
        """Decide the queue up to the first transaction over several tables."""
        if view.room <= 0:
            view.table.publisher.publish_pending()
            return Ratified.OVERTAKEN, ()
        # check: the-queue-ends-before-it (takewhile -> filter)
        queue = list(takewhile(lambda each: each.joint is None, view.queue))
        decision_input = replace(view, queue=queue).input()
        decision = resolve(decision_input, room=view.room)
        if not decision.verdicts:
            return Ratified.OVERTAKEN, ()
        batches = batches_of([(view.table, view.state, decision)])
        return ratify(batches, _checks(decision_input, decision)), batches

    def _decide_jointly(self, shares: Sequence[QueueView]) -> tuple[Ratified, Sequence[Batch]]:
        """Decide a transaction that is first in all of its tables."""
        full = [share for share in shares if share.room <= 0]
        # check: others-backlog-is-kept-to
        if full and shares[0].queue[0].against is None:  # a withdrawal needs no room
            for each in full:
                each.table.publisher.publish_pending()
            return Ratified.OVERTAKEN, ()
        parts = {share.table.location: share.input() for share in shares}
        decisions = resolve_joint(parts)
        committed = {location for location, decision in decisions.items() if decision.verdicts[0].refusal is None}
        # check: all-tables-or-none
        invariant("I11", committed in (set(), set(parts)), f"of {sorted(parts)} only {sorted(committed)} would be committed")
        batches = batches_of([(share.table, share.state, decisions[share.table.location]) for share in shares])
        return ratify(batches, [check for at, decision in decisions.items() for check in _checks(parts[at], decision)]), batches

    def _shares(self, view: QueueView, withdrawn: str | None) -> Sequence[QueueView] | Refusal:
        """The queues of the first transaction's tables, of which its slot was read; or why it can never be committed.

        It cannot if it names a table wrongly, as long as it is undecided where it was met, which the compare-and-set there ensures.
        """
        queued = view.queue[0]
        assert queued.joint is not None
        here, transaction_id = view.table.context, queued.transaction_id
        origin = here.coordination.read(here.tree.slot(view.state.head.generation, SlotName(queued.slot, transaction_id)))
        if origin is None:
            return lacks_siblings(view.table.location, "its slot is gone")
        shares: list[QueueView] = []
        for location in queued.joint.tables:
            share = self._view_of(location)
            if share is None:
                return lacks_siblings(location, "the coordinator has no such table (any more)")
            context, head = share.table.context, share.state.head
            names = [each for each in undecided(share.state.slots, head) if each.transaction_id == transaction_id]
            node = context.coordination.read(context.tree.slot(head.generation, names[0])) if names else None
            recorded = None if node is not None else share.table.verdicts.refusal_of(transaction_id)
            if recorded is not None:
                return recorded
            # check: siblings-were-made-together (without or node.created_zxid != origin.created_zxid)
            if node is None or node.created_zxid != origin.created_zxid:
                return lacks_siblings(location, "it has no slot there that was made together with the others")
            try:
                theirs = read_intent(node.data, head)
            except MalformedRecord:
                theirs = None
            # check: siblings-say-the-same (without or theirs.joint != queued.joint)
            if theirs is None or theirs.transaction_id != transaction_id or theirs.joint != queued.joint:
                return lacks_siblings(location, "its slot there says something else")
            shares.append(replace(share, queue=[queued_in(context, names[0], node, head, withdrawn, self._own.get(location))]))
        return shares

    def _refuse_here(self, view: QueueView, problem: Refusal) -> tuple[Ratified, Sequence[Batch]]:
        """Refuse the first transaction in the table where it was met. That also prevents its commit elsewhere, which would need this slot.

        It may be committed already: then it was filed again, after a lost reply.
        """
        queued = view.queue[0]
        assert queued.member is not None
        intent = queued.member.intent
        decision = refused(view.state.head, queued, problem)
        before = self._committed_before(view, intent) if intent.filed_again else None
        # check: too-late-the-second-time
        if before is not None:
            decision = replace(decision, verdicts=(replace(before, slot=queued.slot),))
        _log.info("transaction %s is not decided in %s: %s", queued.transaction_id, view.table.location, problem.message)
        batches = batches_of([(view.table, view.state, decision)])
        return ratify(batches, ()), batches

    def _committed_before(self, view: QueueView, intent: Intent) -> Verdict | None:
        """The verdict of a transaction that was committed from other slots; a table that it only reads may have no record of it."""
        here = view.table.location
        assert intent.joint is not None
        for location in intent.joint.tables if intent.only_reads else (here,):
            table = self._at(location)
            state = table.context.read_published()
            oldest = -1 if state is None else max(-1, state[0].version - WINDOW_VERSIONS_MAX)
            after = max(oldest, intent.validated_through) if location == here else oldest
            found = table.context.up_to_date(partial(table.verdicts.search, intent.transaction_id, after=after)).commit
            if found is not None:
                place = (found.version, found.ordinal) if location == here else (view.state.head.version, -1)
                return Verdict(NO_SLOT, intent.transaction_id, *place, repeats=True)
        return None


def decide_without_slot(table: CoordinatedTable, member: Member) -> tuple[Ratified, Sequence[Batch]]:
    """The fast path: if the queue is empty, one multi writes an intent and its verdict, in one round trip.

    The record contains the intent, instead of a slot; decision and compare-and-set are those of every other transaction. If anything is in
    its way (a waiting slot, a publication in progress, a faster client, a conflict), nothing is written, and it claims a slot. One such
    commit may overtake a slot created after the look at the queue; a client that sees the slot does not overtake it again.
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


def _checks(decision_input: DecisionInput, decision: Decision) -> list[Check]:
    """The checks of leases with which a decision is ratified (I9)."""
    intents = [member.intent for members in decision.members.values() for member in members]
    refusals = [verdict.refusal for verdict in decision.verdicts if verdict.refusal is not None]
    return decision_input.leases.checks(intents, refusals)


# -- ratification --------------------------------------------------------------------------------------------


class Ratified(Enum):
    """The result of a ratifying multi."""

    DONE = auto()
    OVERTAKEN = auto()
    """Another client decided first."""
    LEASES_MOVED = auto()
    """A lease was granted or lost meanwhile: the same slots must be decided again."""
    UNKNOWN = auto()
    """The reply was lost, and the batch has no record: it never took effect, or was published and pruned since."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A decision in one table, on the `state` it was computed from, as it is recorded and rendered."""

    table: CoordinatedTable
    state: TableState
    decision: Decision
    record: BatchRecord
    contents: Mapping[int, Text]

    @property
    def name(self) -> VerdictName:
        """The name of its record: the last slot and version it decided."""
        before, record = self.state.head, self.record
        without_version = [v for v in record.verdicts if v.refusal is not None or v.repeats]
        slot = record.verdicts[-1].slot
        return VerdictName(record.generation, before.slot if slot == NO_SLOT else slot, self.decision.head.version, bool(without_version))

    def publish(self) -> bool:
        """Publish it; returns whether it is certainly published now: else another client is at earlier versions, and goes on to it."""
        state, name, publisher = self.state, self.name, self.table.publisher
        # check: own-batch-in-its-turn (without state.is_published and)
        if state.is_published and publisher.publish(name, self.record, state.published, state.published_node, state.records):
            return True
        now = self.table.context.read_published()
        if now is None or now[0] == state.published:
            return False
        published, version = publisher.publish_pending(), self.record.last_version
        return published.covers(name.generation, name.slot) and (version is None or version <= published.version)


def batches_of(decisions: Sequence[tuple[CoordinatedTable, TableState, Decision]], direct: Intent | None = None) -> list[Batch]:
    """Decisions that are recorded together; with `direct`, the decision on an intent without a slot, which the record contains."""
    context, batch_id = decisions[0][0].context, uuid.uuid4().hex
    by = Rendering(context.clock.now_ms(), context.release.engine, context.release.rendering)
    batches: list[Batch] = []
    for table, state, decision in decisions:
        if decision.objects:
            store_objects(table.context, decision.objects)
        contents: dict[int, Text] = {}
        versions: list[VersionPlan] = []
        previous, files = state.head.digest, state.head.files
        if decision.versions and not files:
            # check: a-chain-begins-with-what-is-there (table.log.chain_after(state.head.version) -> "", "0")
            previous, files = table.log.chain_after(state.head.version)
        for plan in decision.versions:
            members = decision.members[plan.version]
            # check: the-chain-counts-files (files_after(files, concatenated([m.actions for m in members])) -> files)
            files = files_after(files, concatenated([m.actions for m in members]))
            # check: the-chain-has-the-version-before (previous=previous -> previous="")
            linked = replace(plan, previous=previous, files=files)
            contents[plan.version] = content = render(linked, members, by)
            previous = sha256(content)
            versions.append(replace(linked, digest=previous))
        # check: the-head-knows-the-chain (digest=previous, files=files -> digest="", files="")
        decision = replace(decision, head=replace(decision.head, digest=previous, files=files))
        record = BatchRecord(
            batch_id=batch_id,
            generation=state.head.generation,
            rendering=by,
            verdicts=decision.verdicts,
            versions=tuple(versions),
            direct="" if direct is None else direct.encode().decode(),
        )
        batches.append(Batch(table, state, decision, record, contents))
    return batches


def ratify(batches: Sequence[Batch], checks: Sequence[Check], filing: str | None = None) -> Ratified:
    """Record batches if the heads are those they were computed from (I1), and the leases they rely on are held (I9).

    The owner's node of `filing`, a transaction that is filed with its verdict, must exist, too. Raises OutcomeUnknown if that is in doubt.
    """
    ops: list[Op] = []
    for batch in batches:
        ops += ratifying_ops(batch)
    # check: leases-are-checked
    ops += checks
    for batch in batches:
        # check: filed-while-the-owner-stands-on-the-fast-path (without filing)
        ops += batch.table.context.liveness_checks(filing)
    lead = batches[0].table.context
    point("before-ratify")
    try:
        # check: all-heads-in-one-multi (apply(ops) -> apply(ops[:2]), lead.coordination.apply(ops[2:]))
        lead.coordination.apply(ops)
    except ApplyRefused as refused:
        outdated = [batch.table.guard.was_outdated(refused, ops) for batch in batches]
        for batch in batches:
            batch.table.context.was_restored(getattr(refused.cause, "path", ""))
        return Ratified.LEASES_MOVED if any(outdated) else Ratified.OVERTAKEN
    except ReplyLost:
        path = lead.tree.verdict(batches[0].name)
        if filing is not None:
            node = lead.after_lost_reply(filing, lambda: lead.coordination.read(path))
        else:
            # check: barrier-after-a-lost-ratification
            lead.coordination.barrier()
            node = lead.coordination.read(path)
        if node is None:
            # check: lost-on-the-fast-path-is-told (UNKNOWN -> OVERTAKEN)
            return Ratified.UNKNOWN
        # check: batch-is-recognised
        if not is_batch(node.data, batches[0].record.batch_id):
            return Ratified.OVERTAKEN
    point("after-ratify")
    for batch in batches:
        for version, content in batch.contents.items():
            batch.table.log.remember(version, content)
    return Ratified.DONE


def ratifying_ops(batch: Batch) -> list[Op]:
    """The operations that record a batch, if the head is still the one it was computed from (I1)."""
    tree, after = batch.table.context.tree, batch.decision.head
    # check: head-is-compared (batch.state.head_node.version -> -1)
    return [
        Write(tree.head, after.encode(), batch.state.head_node.version),
        Create(tree.verdict(batch.name), batch.record.encode()),
    ]
