"""Commits transactions over one table or several, and finds their outcomes.

::

              file_intents               decide + ratify              put <v>.json
    staged --------------> intent filed ----------------> ratified ----------------> published ---> acknowledged
                                                             |                           |
                                                             | refused: NotCommitted     | trouble here is never a failure (I12):
                                                             v                           v  "committed, publication pending"

A waiting owner looks when publication moves, and when its patience ends. The owner of the first undecided slot decides the
queue at once; any other client may, after a patience: so a slow, paused or dead client delays others only briefly (I8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter

from ...storage.errors import SluiceError, Unavailable
from ..errors import CoordinatorUnavailable, NotCommitted, OutcomeUnknown, TableMoved, TransactionExpired, UnknownFormat
from ..formats import MalformedRecord
from ..nodes.context import TableState, naming, undecided
from ..nodes.presence import another_id
from ..nodes.records import read_intent
from ..publication.failure_points import point
from ..rules.intent import Intent
from ..rules.refusal import forgotten, refusal_error
from ..service.clock import Deadline, Timeout, bounded_s, bounding
from .decider import Batch, Decider, QueueView, Ratified, decide_without_slot
from .decision import groupable
from .leg import FINISHED, Decide, Leg, Phase, Progress, Publish, ReadVerdicts, Step, next_step
from .outcomes import Claim, Commit, Outcome
from .queue import Filing, file_intents, find_slot, state_now
from .table import TROUBLE, CoordinatedTable

_log = logging.getLogger(__name__)
_PAUSE_AFTER_TROUBLE_S = 0.2
_ATTEMPTS_LOOKED_AT = 8


class CommitLoop:
    """One transaction on its way, from its slots to its outcome in every table."""

    def __init__(
        self,
        decider: Decider,
        legs: Sequence[Leg],
        deadline: Deadline,
        *,
        ack: str = "published",
        withdrawing: bool = False,
        home: int | None = None,
    ) -> None:
        """If `withdrawing`, it is refused if undecided. `home` is a leg whose slot is decided, too, after another table refused it."""
        self._decider = decider
        self._legs = legs
        self._progress = Progress(until_published=ack != "ratified", withdrawn=withdrawing, home=home)
        self._clock = legs[0].table.context.clock
        self._wake = self._clock.event()
        self._limit = deadline
        self._refusal: NotCommitted | None = None
        self._unknown: UnknownFormat | None = None
        self._take_verdicts()

    def run(self, ratified: Sequence[Batch] = ()) -> dict[str, Commit]:
        """Look, step, look again, until it is decided and, with `ack` = "published", published; its commits by location.

        `ratified` are batches that decided it already. Raises the refusal; OutcomeUnknown if the deadline passes before the decision.
        """
        self._take(ratified)
        while not (self._is_decided and self._next() is FINISHED):
            self._wake.clear()
            decided_before, acted = self._is_decided, False
            try:
                for leg in self._legs:
                    leg.look(self._wake, self._progress)
                if {leg.phase for leg in self._legs} == {Phase.GONE}:
                    raise self._legs[0].table.context.missing_error()
                acted = self._perform(self._next())
            # check: trouble-with-deciding-is-waited-out
            except TROUBLE as trouble:
                self._note(trouble)
                self._wake.wait(min(_PAUSE_AFTER_TROUBLE_S, self._limit.left_s))
            if self._limit.over and self._is_decided == decided_before:
                self._give_up()
                break
            if not acted:
                left = min(
                    (leg.patience.left_s for leg in self._legs if leg.phase is not Phase.PUBLISHED or not leg.verdict_read), default=0.0
                )
                self._wake.wait(min(max(left, 0.001), self._limit.left_s))
        refusal, self._refusal = self._refusal, None  # no circle of references: it would hold the transaction until the next collection
        try:
            if refusal is not None:
                raise refusal
        finally:
            del refusal
        return {leg.table.location: leg.commit for leg in self._legs if leg.commit is not None}

    @property
    def _is_decided(self) -> bool:
        return self._progress.committed or self._progress.refused

    def _next(self) -> Step:
        return next_step(self._progress, [leg.seen for leg in self._legs])

    def _perform(self, step: Step) -> bool:
        """Perform a step; returns whether it may have changed what the next look shows."""
        match step:
            case ReadVerdicts(legs):
                self._take_verdicts(*[self._legs[i].read_verdict for i in legs])
            case Publish(legs):
                for i in legs:
                    self._legs[i].publish_pending()
            case Decide():
                return self._decide(step)
            case _:
                return False
        return True

    def _decide(self, step: Decide) -> bool:
        leg = self._legs[step.leg]
        for i in step.overdue:
            self._legs[i].patience.used()
        if step.leg in step.overdue:  # publish what its table waits for; trouble with it prevents no decision, which keeps to the room left
            try:
                if leg.publish_pending():
                    return True
            except UnknownFormat:  # a client of the newer release goes on, and this one neither publishes nor decides
                raise
            # check: trouble-with-publishing-is-no-obstacle
            except TROUBLE as trouble:
                self._note(trouble)
        state: TableState | None = leg.state or leg.table.context.look()
        withdrawn = leg.transaction_id if self._progress.withdrawn else None
        batches = () if state is None else self._decider.decide(QueueView(leg.table, state), withdrawn)
        self._take(batches)
        return bool(batches)

    def _take(self, batches: Sequence[Batch]) -> None:
        """Take the verdicts from batches that this client ratified, and publish them; trouble with that is left to the waiting (I12)."""
        legs = {each.table: each for each in self._legs}
        for batch in batches:
            leg = legs.get(batch.table)
            if leg is not None:
                leg.table.alone = len(batch.record.verdicts) == 1
                self._take_verdicts(partial(leg.take_verdict, batch.record))
            # check: answered-when-published (without and not self._progress.until_published)
            if leg is not None and leg.commit is not None and not self._progress.until_published:
                batch.table.background.submit(batch.publish)
                continue
            try:
                if batch.publish() and leg is not None and leg.commit is not None:
                    leg.published_here()
            # check: trouble-with-publishing-is-no-failure
            except TROUBLE as trouble:
                self._note(trouble)

    def _take_verdicts(self, *verdicts: Callable[[], object]) -> None:
        """Take verdicts, of which the first refusal counts, and determine the outcome once those of all tables were read.

        In a table that was only read, the record of the decision may be pruned, and no version has it: the others' answer applies (I11).
        """
        try:
            for each in verdicts:
                each()
        except NotCommitted as refusal:
            self._refuse(refusal)
        unread = [leg for leg in self._legs if not leg.verdict_read]
        if self._is_decided or unread:
            return
        point("decided")
        lead = self._legs[0]
        committed = [leg for leg in self._legs if leg.commit is not None]
        # check: forgotten-where-it-was-read (committed -> len(committed) == len(self._legs))
        if committed:
            self._progress = self._progress._replace(committed=True)
            self._limit = Deadline.after(bounded_s(lead.table.context.limits.publication_wait_s), self._clock)
        else:
            self._refuse(refusal_error(forgotten(lead.transaction_id), lead.transaction_id))

    def _refuse(self, refusal: NotCommitted) -> None:
        self._refusal = self._refusal or refusal
        self._progress = self._progress._replace(refused=True)

    def _note(self, trouble: SluiceError) -> None:
        _log.info("transaction %s waits: %s", self._legs[0].transaction_id, trouble)
        self._unknown = trouble if isinstance(trouble, UnknownFormat) else None

    def _give_up(self) -> None:
        """What is ratified is committed. Raises OutcomeUnknown for the rest."""
        transaction_id = self._legs[0].transaction_id
        if self._progress.committed:
            versions = {leg.table.location: leg.commit.version for leg in self._legs if leg.commit is not None}
            _log.warning("transaction %s is committed as %s; publication is pending", transaction_id, versions)
            return
        unknown, self._unknown = self._unknown, None
        why = f": {unknown.message}" if unknown is not None else ""
        raise OutcomeUnknown(
            f"transaction {transaction_id} was filed and will be decided, but not within the time given{why}; ask outcome(transaction_id)",
            transaction_id=transaction_id,
            stage="intent",
        ) from unknown


def commit_filings(filings: list[Filing], deadline: Deadline, *, ack: str = "published") -> dict[str, Commit]:
    """Get one verdict on the intents of one transaction and, with `ack` = "published", wait until it is published; by location.

    The tables of several filings share a session. Raises the conflict (ConcurrentModification, which names its table), LeaseHeld,
    LeaseLost or Refused; CoordinatorUnavailable if it was away until the deadline and nothing was filed; OutcomeUnknown if the
    deadline passed, with the stage "staged" if certainly nothing was filed, else "intent": it will be decided all the same.
    """
    if len(filings) > 1:
        filings = sorted(filings, key=attrgetter("table.location"))
        filings[0].table.know([filing.table for filing in filings[1:]])
    # other changes may have other engines' files in them, as those that a RESTORE brings back: everybody checks them
    # check: only-plain-appends-are-of-own-files (without each.member.footprint.plain_append and)
    made = {each.table.location: each.member for each in filings if each.member.footprint.plain_append and not each.member.intent.staged}
    decider = Decider(filings[0].table, made)
    named = naming if len(filings) > 1 else nullcontext
    for filing in filings:
        with named(filing.table.location):
            # check: damage-stops-writers
            filing.table.publisher.log_checks.require_sound()
            filing.table.guard.require_free(filing.member)
    directly = len(filings) == 1 and filings[0].table.tries_directly and not deadline.over
    legs, batches, away = _decided_at_once(filings) if directly else ([], (), None)
    if not legs:
        legs = _filed(filings, deadline, away)
    commits = CommitLoop(decider, legs, deadline, ack=ack).run(batches)
    for filing in filings:
        commit, table = commits.get(filing.table.location), filing.table
        if commit is None:
            continue
        if not commit.published:
            table.background.note(commit.version)
        table.note(commit.version)
    point("before-ack")
    return commits


def _decided_at_once(filings: list[Filing]) -> tuple[list[Leg], Sequence[Batch], CoordinatorUnavailable | None]:
    """The leg and the batch of a transaction that was ratified on the fast path; no leg: it must claim a slot.

    The trouble says that the coordinator was away, and that nothing was sent.
    """
    [filing] = filings
    table, member = filing.table, filing.member
    intent = member.intent
    try:
        done, batches = decide_without_slot(table, member)
    except Unavailable as trouble:  # reading failed
        _log.info("transaction %s queues: %s", intent.transaction_id, trouble)
        return [], (), trouble if isinstance(trouble, CoordinatorUnavailable) else None
    if done is Ratified.DONE:
        return [Leg(table, intent.transaction_id, None)], batches, None
    table.alone = False
    if done is Ratified.UNKNOWN:  # if it took effect, the decision finds it in the log
        # check: filed-again-is-said-after-the-fast-path
        filings[0] = replace(filing, member=replace(member, intent=replace(intent, filed_again=True)))
    table.guard.require_free(filings[0].member)
    return [], (), None


def _filed(filings: Sequence[Filing], deadline: Deadline, away: CoordinatorUnavailable | None) -> list[Leg]:
    """The legs of a transaction that is filed now, or that another process filed and committed."""
    alone = len(filings) == 1
    try:
        claims = file_intents(filings, deadline, away)
    except TransactionExpired:
        if not alone:
            raise
        # another process may have committed the plan and closed it: under this id, or one it was filed under again
        table, transaction_id = filings[0].table, filings[0].member.intent.transaction_id
        table.context.barrier()
        for _ in range(_ATTEMPTS_LOOKED_AT):
            outcome = table.verdicts.search(transaction_id, deadline=deadline)
            if outcome.commit is not None:
                return [Leg(table, transaction_id, None, commit=replace(outcome.commit, repeated=True), verdict_read=True)]
            if outcome.error is None:
                break
            transaction_id = another_id(transaction_id)
        raise
    return [
        Leg(
            each.table,
            each.member.intent.transaction_id,
            claim,
            each.member.intent,
            alone=alone,
            grouped=alone and groupable(each.member.intent, each.member.footprint),
        )
        for each, claim in zip(filings, claims, strict=True)
    ]


# -- outcomes ------------------------------------------------------------------------------------------------------------


def outcome_of(table: CoordinatedTable, transaction_id: str, timeout_s: Timeout, *, after: int = -1, withdrawing: bool = False) -> Outcome:
    """The outcome of a transaction (I10): committed, refused with a reason, or, if its slot is undecided, decided now.

    Searches versions higher than `after`, and publishes what is committed if possible. If `withdrawing`, an undecided one is refused
    (Withdrawn). Of a table that moved it is asked at its new place.
    """
    with bounding(timeout_s, table.clock) as deadline:
        try:
            return _outcome_here(table, transaction_id, deadline, after, withdrawing=withdrawing)
        except TableMoved as moved:
            return outcome_of(table.follow(moved), transaction_id, deadline, after=after, withdrawing=withdrawing)


def _outcome_here(table: CoordinatedTable, transaction_id: str, deadline: Deadline, after: int, *, withdrawing: bool) -> Outcome:
    filed = _search(table, transaction_id, after, deadline)
    if isinstance(filed, Outcome):
        return filed if filed.commit is None else Outcome.committed(see_published(table, filed.commit))
    claim, intent = filed
    try:
        if intent is None or intent.joint is None or intent.transaction_id != transaction_id:
            legs, home = [Leg(table, transaction_id, claim, intent)], None
        else:
            legs = []
            for each in map(table.beside, intent.joint.tables):
                state = each.context.read_head()
                slot = None if state is None else find_slot(each.context, transaction_id, state[0])
                legs.append(Leg(each, transaction_id, slot, alone=False))
            home = next((i for i, leg in enumerate(legs) if leg.table is table), None)
        commit = CommitLoop(Decider(table), legs, deadline, withdrawing=withdrawing, home=home).run().get(table.location)
    except NotCommitted as refused:
        return Outcome.refused(refused)
    return Outcome("unknown") if commit is None else Outcome.committed(commit)


def _search(table: CoordinatedTable, transaction_id: str, after: int, deadline: Deadline) -> Outcome | tuple[Claim, Intent | None]:
    """The slot of a transaction with its intent (None if that cannot be read), or its outcome if it has no slot."""
    context = table.context
    while True:
        session = context.coordination.session_id
        # check: barrier-before-an-outcome
        context.coordination.barrier()
        state = context.read_head()
        # check: outcomes-are-asked-where-the-table-is
        if state is None:
            context.require_here()
        claim = None if state is None else find_slot(context, transaction_id, state[0])
        node = None if claim is None else context.coordination.read(claim.path(context.tree))
        # check: undecided-is-decided-by-who-asks
        if state is not None and claim is not None and node is not None:
            try:
                return claim, read_intent(node.data, state[0])
            except MalformedRecord:
                return claim, None
        # check: undecided-is-decided-by-who-asks (always)
        if claim is None:  # otherwise it was decided and cleaned up since
            outcome = table.verdicts.search(transaction_id, after=after, deadline=deadline)
            if outcome.state != "unknown" or context.coordination.session_id == session:
                return outcome  # in another session than the barrier's, "unknown" may be the answer of a lagging server
        if deadline.over:
            raise CoordinatorUnavailable(
                f"the outcome of transaction {transaction_id} could not be found in the time given: sessions with the coordinator "
                "ended while it was asked; ask again",
                transaction_id=transaction_id,
            )


def see_published(table: CoordinatedTable, commit: Commit) -> Commit:
    """Another client's commit, once it is published; unpublished if that takes longer than its time."""
    if commit.published:
        return commit
    leg = Leg(table, commit.transaction_id, None, commit=commit, verdict_read=True)
    try:
        with suppress(*TROUBLE):
            leg.publish_pending()
        return CommitLoop(Decider(table), [leg], Deadline.after(0.0, table.clock)).run()[table.location]
    except TableMoved:  # it left when all was published
        return replace(commit, published=True)


def settle_queue(table: CoordinatedTable, deadline: Deadline) -> None:
    """Wait until every slot that exists now is decided; a dead owner's is, after a patience (I8). Raises Unavailable at the deadline."""
    state = state_now(table.context)
    names = undecided(state.slots, state.head)
    if names:  # when the last one is decided, so are the others (I3)
        try:
            outcome_of(table, names[-1].transaction_id, deadline, after=state.head.version)
        except OutcomeUnknown as unknown:  # of other clients' transactions: the caller has filed nothing
            waits = f"transaction {names[0].transaction_id} is first in it"
            text = f"the queue of {table.location} could not be decided in the time given ({waits}): try again"
            raise Unavailable(text, location=table.location, transaction_id=names[0].transaction_id) from unknown
