"""The commit protocol of one table, as one client runs it: claim, resolve, ratify, publish, acknowledge.

::

            claim_slot                 decide + multi               put <v>.json
    staged ------------> intent filed ---------------> ratified ---------------> published ---> acknowledged
                            |  ^                          |                          |
                            |  | generation was closed    | refused: NotCommitted    | trouble here is never a failure (I12):
                            +--+                          v                          v  "committed, publication pending"

A waiting owner looks when `published` moves, and when its patience ends. Whoever owns the first undecided slot decides
the queue at once; everybody else may, after a patience: a slow, paused or dead client holds nobody up (I8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile

from ...storage.errors import InvalidRequest, SluiceError, Unavailable
from ..errors import CoordinatorUnavailable, NotCommitted, TransactionExpired, UnknownFormat
from ..fields import MalformedRecord
from ..leases.guard import LeaseGuard
from ..nodes.context import TableContext, TableState
from ..nodes.identity import another_id
from ..nodes.layout import VerdictName
from ..nodes.records import BatchRecord, Head, Published, is_batch, read_intent
from ..rules.intent import Intent
from ..rules.refusal import Refusal
from ..service.clock import Deadline, Event, bounded_s
from ..service.store import ApplyRefused, Check, Node, ReplyLost
from .background import Background
from .claims import Claim, claim_slot, filed_elsewhere, find_slot, move_slot, require_time, undecided, undecided_in_time
from .decision import Queued, groupable, resolve
from .failure_points import point
from .fast_path import ratify_directly
from .joint import Joints
from .outcomes import Commit, Outcome, Verdicts, settle
from .patience import Patience
from .publisher import Publisher
from .queue import batch_of, ratifying_ops, read_queue, record_name, with_winners
from .ratified_log import RatifiedLog, store_objects

__all__ = ["Committer"]

_log = logging.getLogger(__name__)
_PAUSE_AFTER_TROUBLE_S = 0.2
_ATTEMPTS_LOOKED_AT = 8
_TROUBLE = (Unavailable, InvalidRequest)
"""What a filed transaction waits out: services that are away, and what this client is not allowed to (others may be)."""


class Committer:
    """Commits transactions to one table. Safe for several threads."""

    def __init__(self, context: TableContext) -> None:
        self.context = context
        self.log = RatifiedLog(context)
        self.leases = LeaseGuard(context)
        self.background = Background(self._see_published)
        self.publisher = Publisher(context, self.log, self.background.submit)
        self._helping = Background(self._see_published)
        """Publishes for others, after a patience; what this client owes itself does not wait for that."""
        self.verdicts = Verdicts(context, self.log)
        self.joints = Joints(self)
        self.last_committed = -1
        """The highest version a caller was told of here."""
        self._alone = True

    # -- the caller's side -------------------------------------------------------------------------------------------

    def commit(self, intent: Intent, head: Head, deadline: Deadline, *, ack: str = "published") -> Commit:
        """Get a verdict on the intent and, with `ack` = "published", see it published.

        Raises the conflict (ConcurrentModification), LeaseHeld, LeaseLost or Refused; CoordinatorUnavailable when it was away until
        the deadline and nothing was filed; OutcomeUnknown when the deadline passed: its stage is "staged" when certainly nothing
        was filed, "intent" when the slot exists, or may, and will be decided all the same.
        """
        require_time(intent.transaction_id, deadline)
        self.publisher.neighbourhood.require_sound()
        self.leases.require_free(intent)
        try:
            commit = self._directly(intent, ack)
        except ReplyLost:
            commit, intent = None, replace(intent, filed_again=True)  # if it took effect, the decision finds it in the log
        if commit is None:
            self.leases.require_free(intent)
            commit = self._by_its_slot(intent, head, deadline, ack)
        if not commit.published:
            self.background.note(commit.version)
        self.last_committed = max(self.last_committed, commit.version)
        point("before-ack")
        return commit

    def _by_its_slot(self, intent: Intent, head: Head, deadline: Deadline, ack: str) -> Commit:
        try:
            claim = claim_slot(self.context, intent, head, deadline, self.verdicts.knows, self.verdicts.raise_refusal)
        except TransactionExpired:
            commit = self._by_another(intent.transaction_id, deadline)
            if commit is None:
                raise
            return self.see_published(commit)
        return self._await(claim, intent, deadline, ack)

    def _by_another(self, transaction_id: str, deadline: Deadline) -> Commit | None:
        """The commit of a plan that another process committed, and closed then: under this id, or one it was filed under again."""
        self.context.barrier()
        for _ in range(_ATTEMPTS_LOOKED_AT):
            found = self.verdicts.search(transaction_id, deadline=deadline)
            if found.error is None:
                return None if found.commit is None else replace(found.commit, repeated=True)
            transaction_id = another_id(transaction_id)
        return None

    @property
    def tries_directly(self) -> bool:
        """Whether the next commit tries the fast path: the last one was alone in its batch."""
        return self._alone and self.context.limits.fast_path

    def _directly(self, intent: Intent, ack: str) -> Commit | None:
        """Commit on the fast path where that is worth a try; None: the intent has to queue."""
        if not self.tries_directly:
            return None
        try:
            done = ratify_directly(self.context, self.log, self.leases, intent)
        except Unavailable as trouble:  # it was reading that failed
            _log.info("transaction %s queues: %s", intent.transaction_id, trouble)
            return None
        self._alone = done is not None
        if done is None:
            return None
        told = self.verdicts.told_directly(done.record)
        commit = replace(settle(told), published=False)
        publish = partial(self.publish, done.before, done.record)
        if ack == "ratified":
            self.background.submit(publish)
            return commit
        return self._publish_in_time(commit, publish)

    def see_published(self, commit: Commit) -> Commit:
        """A commit that others made, once it is published; as it is when that takes longer than the time for it."""
        return commit if commit.published else self._publish_in_time(commit, lambda: False)

    def _publish_in_time(self, commit: Commit, publish: Callable[[], bool]) -> Commit:
        """Publish a ratified version within the time for that; trouble with it is no failure (I12)."""
        limit = Deadline.after(bounded_s(self.context.limits.publication_wait_s), self.context.clock)
        while True:
            try:
                if publish() or self.publisher.publish_pending().version >= commit.version:
                    return replace(commit, published=True)
            except _TROUBLE as trouble:
                _log.info("version %d waits to be published: %s", commit.version, trouble)
            if limit.over:
                _log.warning("transaction %s is committed as version %d; publication is pending", commit.transaction_id, commit.version)
                return commit
            self.context.clock.sleep(min(_PAUSE_AFTER_TROUBLE_S, limit.left_s))

    def outcome(self, transaction_id: str, deadline: Deadline, *, after: int = -1, against: Refusal | None = None) -> Outcome:
        """What became of a transaction (I10): committed, refused because, or, when its slot is undecided, decided now.

        It is looked for in versions higher than `after`, and what is committed is published if that can be done. The barrier
        sees to it that "unknown" is not the answer of a server that is behind. With `against` it is refused for that where it is
        undecided: only its owner may do so.
        """
        while True:
            session = self.context.coordination.session_id
            self.context.coordination.barrier()
            state = self.context.read_head()
            claim = None if state is None else find_slot(self.context, transaction_id, state[0])
            node = None if claim is None else self.context.coordination.read(claim.path(self.context.tree))
            if state is not None and claim is not None and node is not None:
                break
            if claim is None:  # else it was decided and cleaned up since, or filed again in another generation
                found = self.verdicts.search(transaction_id, after=after, deadline=deadline)
                if found.commit is not None:
                    return Outcome.committed(self.see_published(found.commit))
                if found.state != "unknown" or self.context.coordination.session_id == session:
                    return found  # in another session than the barrier's "unknown" may be the word of a server that is behind
            if deadline.over:
                raise CoordinatorUnavailable(
                    f"what became of transaction {transaction_id} could not be told in the time given: sessions with the coordinator "
                    "ended while it was asked; ask again",
                    transaction_id=transaction_id,
                )
        try:
            intent = read_intent(node.data, state[0])
        except MalformedRecord:
            intent = None
        try:
            if intent is not None and intent.joint is not None and intent.transaction_id == transaction_id:
                return self.joints.outcome(intent, deadline, against=against)
            return Outcome.committed(self._await(claim, intent, deadline, "published", against))
        except NotCommitted as refused:
            return Outcome.refused(refused)

    def settle_queue(self, deadline: Deadline) -> None:
        """Return when every slot that exists now is decided; who waits for a dead owner does so for a patience (I8).

        Raises OutcomeUnknown when the deadline passes before that.
        """
        self.context.barrier()
        state = self._state(None)
        names = undecided(state.slots, state.head)
        if names:  # whoever sees the last one decided has seen the others decided before it (I3)
            self.outcome(names[-1].transaction_id, deadline, after=state.head.version)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _await(self, claim: Claim, intent: Intent | None, deadline: Deadline, ack: str, against: Refusal | None = None) -> Commit:
        """See a claim through; `intent` is None when the slot holds none that can be read (it will be refused)."""
        wake = self.context.clock.event()
        patience = Patience(self.context.limits, self.context.clock)
        ratified: Commit | None = None
        unknown: UnknownFormat | None = None
        pending = Deadline.after(bounded_s(self.context.limits.publication_wait_s), self.context.clock)
        while True:
            wake.clear()
            try:
                published = self._published(wake)
                if published.covers(claim.generation, claim.slot):
                    if ratified is not None:
                        return replace(ratified, published=True)
                    moved = self._moved(claim, intent, published)
                    if moved is None:
                        return settle(self.verdicts.published(claim, published))
                    claim = moved
                    continue
                patience.see(published)
                if against is None and self._only_waits(claim, intent, published, ack) and patience.left_s > 0:
                    wake.wait(min(patience.left_s, deadline.left_s))
                    if not deadline.over:
                        continue
                state = self._state(wake if ack == "ratified" else None)
                patience.see(state.head)
                if claim.is_decided(state.head):
                    if ratified is None:
                        ratified = replace(settle(self.verdicts.of(claim)), published=False)
                        pending = Deadline.after(bounded_s(self.context.limits.publication_wait_s), self.context.clock)
                    if ack == "ratified":
                        return ratified
                    if patience.left_s == 0:
                        self.publisher.publish_pending()
                        patience.used()
                        continue
                elif against is not None or self._my_turn(claim, intent, state) or patience.left_s == 0:
                    if patience.left_s == 0:
                        patience.used()
                        if self.publisher.publish_pending() != state.published:
                            continue
                    record = self._decide(state, deadline, None if against is None else (claim, against))
                    if record is not None:
                        self._alone = len(record.verdicts) == 1
                        told = self.verdicts.told_by(record, claim)
                        if told is not None and told.verdict.refusal is None:
                            ratified = replace(settle(told), published=False)
                            pending = Deadline.after(bounded_s(self.context.limits.publication_wait_s), self.context.clock)
                        publish = partial(self.publish, state, record)
                        if ratified is not None and ack == "ratified":
                            self.background.submit(publish)
                            return ratified
                        if publish() and told is not None:
                            return settle(told)
                        continue
            except _TROUBLE as trouble:
                unknown = _waited_out(trouble, claim, wake)
            limit = pending if ratified is not None else deadline
            if limit.over:
                return self._give_up(claim, ratified, unknown)
            wake.wait(min(max(patience.left_s, 0.001), limit.left_s))

    def _give_up(self, claim: Claim, ratified: Commit | None, unknown: UnknownFormat | None) -> Commit:
        if ratified is not None:
            _log.warning("transaction %s is committed as version %d; publication is pending", claim.transaction_id, ratified.version)
            return ratified
        raise undecided_in_time(claim.transaction_id, unknown) from unknown

    def help_to_publish(self, head: Head) -> None:
        """Let a thread see published what a reader found to be ratified only: its writer may be dead.

        One at a time; trouble with it is logged, and whoever finds it next tries again.
        """
        node = self.context.published_then
        try:
            published = None if node is None else Published.decode(node.data)
        except (MalformedRecord, UnknownFormat):  # clients of a newer release see to it
            return
        if published is not None and published.version < head.version:
            self._helping.submit(partial(self._see_published, head.version), unless_busy=True)

    def _see_published(self, version: int) -> None:
        """Return when a ratified version is published; after a patience this client does it."""
        state = self.context.read_published()
        if state is not None and state[0].version < version:
            self.context.clock.sleep(self.context.limits.patience_s)
            state = self.context.read_published()
        if state is not None and state[0].version < version:
            self.publisher.publish_pending()

    def _published(self, wake: Event) -> Published:
        state = self.context.read_published(wake.set)
        if state is None:
            raise self.context.vanished()
        return state[0]

    def _head(self) -> Head:
        state = self.context.read_head()
        if state is None:
            raise self.context.vanished()
        return state[0]

    def _state(self, wake: Event | None) -> TableState:
        """The table as it is now; `wake` is set when anything more is decided."""
        if wake is not None:
            self.context.read_head(wake.set)
        state = self.context.look()
        if state is None:
            raise self.context.vanished()
        return state

    def _moved(self, claim: Claim, intent: Intent | None, published: Published) -> Claim | None:
        """Where an intent is that came too late for its generation, filed again if need be; None: decided there, so its slot is gone."""
        if published.generation == claim.generation:
            return None
        if self.context.coordination.read(claim.path(self.context.tree)) is None:
            return filed_elsewhere(self.context, claim)
        return None if intent is None else move_slot(self.context, claim, intent, self._head()) or claim

    def _only_waits(self, claim: Claim, intent: Intent | None, published: Published, ack: str) -> bool:
        """Whether a look at the head can change nothing yet: a grouped append waits until all before it is published."""
        return intent is not None and ack == "published" and groupable(intent) and not claim.is_next(published)

    def _my_turn(self, claim: Claim, intent: Intent | None, state: TableState) -> bool:
        """Whether to decide at once: mine is the first undecided slot, and publication keeps up.

        The pace is set by publishing: a version of grouped appends waits until nothing else is in publication, so that
        the queue fills meanwhile; other versions may run a few ahead.
        """
        if intent is None or not claim.is_first(state.head):
            return False
        return state.is_published if groupable(intent) else state.backlog < self.context.limits.backlog_versions_max

    # -- deciding ----------------------------------------------------------------------------------------------------

    def publish(self, before: TableState, record: BatchRecord) -> bool:
        """Publish a batch this client ratified on top of what was `before`; whether it is published for certain now.

        What was ratified before it may be in another's hands: that one goes on with this batch, or patience sees to it.
        The versions are compared too: what was ratified directly has no slot.
        """
        name = record_name(record, before.head)
        if before.is_published and self.publisher.publish(name, record, before.published, before.published_node, before.records):
            return True
        state = self.context.read_published()
        if state is not None and state[0] != before.published:
            return self.publisher.publish_pending().covers(name.generation, name.slot)
        return False

    def _decide(self, state: TableState, deadline: Deadline, refusing: tuple[Claim, Refusal] | None) -> BatchRecord | None:
        """Decide what is first in the queue; None when no batch of this table alone came of it."""
        decided = self.decide(state, refusing)
        if not isinstance(decided, Queued):
            return decided
        self.joints.decide(decided, state.head.generation, deadline)
        return None

    def decide(self, state: TableState, refusing: tuple[Claim, Refusal] | None = None) -> BatchRecord | Queued | None:
        """Decide what is queued and ratify it, up to the first transaction over several tables; one slot may be refused in any case.

        None when there was nothing to do or another was faster. What is first in the queue, when that is such a transaction:
        it needs its other tables, too.
        """
        limits, head = self.context.limits, state.head
        room = limits.backlog_versions_max - state.backlog
        while True:  # once more for each lease that was granted or lost just now
            queue = read_queue(self.context, state)
            if not queue or room <= 0:
                return None
            if queue[0].joint is not None:
                return queue[0]
            queue = tuple(takewhile(lambda each: each.joint is None, queue))
            if refusing is not None:
                queue = tuple(_refused(each, *refusing) for each in queue)
            queue, winners = with_winners(self.log, head, queue)
            leases = self.leases.view(each.member.intent for each in queue if each.member is not None)
            decision = resolve(head, queue, winners, limits, room=room, lookup=self.log.rows, leases=leases)
            if not decision.verdicts:
                return None
            store_objects(self.context, decision.objects)
            record, contents = batch_of(decision, head, self.context.rendering())
            checks = leases.checks(
                (member.intent for members in decision.members.values() for member in members),
                (verdict.refusal for verdict in decision.verdicts if verdict.refusal is not None),
            )
            ratified = self._ratify(decision.head, state.head_node, record_name(record, head), record, checks)
            if ratified is None:
                continue
            if not ratified:
                return None
            for version, content in contents.items():
                self.log.remember(version, content)
            return record

    def _ratify(self, after: Head, before: Node, name: VerdictName, record: BatchRecord, checks: Sequence[Check]) -> bool | None:
        """Record a batch with ONE multi on the head it was computed from (I1), while its leases stand (I9).

        Whether it took effect; None when it did not for the sake of a lease only, so that it has to be decided again.
        """
        ops = [*ratifying_ops(self.context, after, before, name, record), *checks, *self.context.standing()]
        point("before-ratify")
        try:
            self.context.coordination.apply(ops)
        except ApplyRefused as refused:
            self.context.recognise_again(getattr(refused.cause, "path", ""))
            return None if self.leases.was_outdated(refused, ops) else False  # False: another client decided first, read again
        except ReplyLost:
            coordination = self.context.coordination
            coordination.barrier()
            node = coordination.read(self.context.tree.verdict(name))
            if node is None or not is_batch(node.data, record.batch_id):
                return False
        point("after-ratify")
        return True


def _refused(queued: Queued, claim: Claim, against: Refusal) -> Queued:
    """What stands in a slot, to be refused when it is this one."""
    mine = (queued.slot, queued.transaction_id) == (claim.slot, claim.transaction_id)
    return replace(queued, against=against) if mine else queued


def _waited_out(trouble: SluiceError, claim: Claim, wake: Event) -> UnknownFormat | None:
    """Pause for what a filed transaction waits out; that trouble when it is one that only a newer release can end."""
    _log.info("transaction %s waits: %s", claim.transaction_id, trouble)
    wake.wait(_PAUSE_AFTER_TROUBLE_S)
    return trouble if isinstance(trouble, UnknownFormat) else None
