"""Commits transactions over one table or several, and finds their outcomes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace

from ...storage.errors import Unavailable
from ..errors import CoordinatorUnavailable, NotCommitted, TransactionExpired, naming
from ..formats import MalformedRecord
from ..nodes.identity import another_id
from ..nodes.records import read_intent
from ..publication.failure_points import point
from ..rules.intent import Intent
from ..rules.refusal import withdrawal
from ..service.clock import Deadline, Timeout, bounding
from .decider import Decider, Withdrawal
from .decision import groupable
from .driver import CommitLoop
from .filing import Filing, file_intents
from .leg import Leg
from .outcomes import Commit, Outcome
from .queue import Claim, find_slot, undecided
from .ratification import Batch, Ratified
from .table import TROUBLE, CoordinatedTable

_log = logging.getLogger(__name__)
_ATTEMPTS_LOOKED_AT = 8


def commit_filings(filings: list[Filing], deadline: Deadline, *, ack: str = "published") -> dict[str, Commit]:
    """Get one verdict on the intents of one transaction and, with `ack` = "published", wait until it is published; by location.

    The tables of several filings share a session. Raises the conflict (ConcurrentModification, which names its table), LeaseHeld,
    LeaseLost or Refused; CoordinatorUnavailable if it was away until the deadline and nothing was filed; OutcomeUnknown if the
    deadline passed: its stage is "staged" if certainly nothing was filed, "intent" if the slots exist, or may exist, and will be
    decided all the same.
    """
    if len(filings) > 1:
        filings = sorted(filings, key=lambda filing: filing.table.location)
        filings[0].table.know(filing.table for filing in filings[1:])
    decider = Decider(filings[0].table)
    named = naming if len(filings) > 1 else nullcontext
    for filing in filings:
        with named(filing.table.location):
            # check: damage-stops-writers
            filing.table.publisher.recent_files.require_sound()
            filing.table.guard.require_free(filing.member)
    directly = len(filings) == 1 and filings[0].table.tries_directly and not deadline.over
    legs, batches, away = _decided_at_once(decider, filings) if directly else ([], (), None)
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


def _decided_at_once(decider: Decider, filings: list[Filing]) -> tuple[list[Leg], Sequence[Batch], CoordinatorUnavailable | None]:
    """The leg and the batch of a transaction that was ratified on the fast path; no leg: it must claim a slot.

    The trouble says that the coordinator was away, and that nothing was sent.
    """
    [filing] = filings
    table, member = filing.table, filing.member
    intent = member.intent
    try:
        done, batches = decider.decide_without_slot(table, member)
    except Unavailable as trouble:  # reading failed
        _log.info("transaction %s queues: %s", intent.transaction_id, trouble)
        return [], (), trouble if isinstance(trouble, CoordinatorUnavailable) else None
    if done is Ratified.DONE:
        return [Leg.of(table, intent.transaction_id, None)], batches, None
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
        commit = _by_another(filings[0].table, filings[0].member.intent.transaction_id, deadline) if alone else None
        if commit is None:
            raise
        return [Leg.ratified(filings[0].table, commit)]
    return [
        Leg.of(
            each.table,
            each.member.intent.transaction_id,
            claim,
            each.member.intent,
            alone=alone,
            grouped=alone and groupable(each.member.intent, each.member.footprint),
        )
        for each, claim in zip(filings, claims, strict=True)
    ]


def _by_another(table: CoordinatedTable, transaction_id: str, deadline: Deadline) -> Commit | None:
    """The commit of a plan that another process committed and closed: under this id, or one it was filed under again."""
    table.context.barrier()
    for _ in range(_ATTEMPTS_LOOKED_AT):
        outcome = table.verdicts.search(transaction_id, deadline=deadline)
        if outcome.error is None:
            return None if outcome.commit is None else replace(outcome.commit, repeated=True)
        transaction_id = another_id(transaction_id)
    return None


# -- outcomes ------------------------------------------------------------------------------------------------------------


def outcome_of(table: CoordinatedTable, transaction_id: str, timeout_s: Timeout, *, after: int = -1, withdrawing: bool = False) -> Outcome:
    """The outcome of a transaction (I10): committed, refused with a reason, or, if its slot is undecided, decided now.

    Searches versions higher than `after`, and publishes what is committed if possible. If it is undecided and its owner is
    `withdrawing` it, it is refused (Withdrawn).
    """
    with bounding(timeout_s, table.clock) as deadline:
        filed = _search(table, transaction_id, after, deadline)
        if isinstance(filed, Outcome):
            return filed if filed.commit is None else Outcome.committed(see_published(table, filed.commit))
        claim, intent = filed
        try:
            if intent is None or intent.joint is None or intent.transaction_id != transaction_id:
                legs, home = [Leg.of(table, transaction_id, claim, intent)], None
            else:
                legs = [_leg_in(table.beside(location), transaction_id) for location in intent.joint.tables]
                home = next((i for i, leg in enumerate(legs) if leg.table is table), None)
            against = Withdrawal(transaction_id, withdrawal(transaction_id)) if withdrawing else None
            commit = CommitLoop(Decider(table), legs, deadline, withdrawal=against, home=home).run().get(table.location)
        except NotCommitted as refused:
            return Outcome.refused(refused)
        return Outcome("unknown") if commit is None else Outcome.committed(commit)


def _search(table: CoordinatedTable, transaction_id: str, after: int, deadline: Deadline) -> Outcome | tuple[Claim, Intent | None]:
    """The slot of a transaction with its intent (None if that cannot be read), or its outcome if it has no slot.

    The barrier ensures that "unknown" is not the answer of a lagging server.
    """
    context = table.context
    while True:
        session = context.coordination.session_id
        # check: barrier-before-an-outcome
        context.coordination.barrier()
        state = context.read_head()
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


def _leg_in(table: CoordinatedTable, transaction_id: str) -> Leg:
    """The leg of a transaction over several tables in one of them."""
    state = table.context.read_head()
    claim = None if state is None else find_slot(table.context, transaction_id, state[0])
    return Leg.of(table, transaction_id, claim, alone=False)


def see_published(table: CoordinatedTable, commit: Commit) -> Commit:
    """Another client's commit, once it is published; unpublished if that takes longer than its time."""
    if commit.published:
        return commit
    leg = Leg.ratified(table, commit)
    with suppress(*TROUBLE):
        leg.publish_pending()
    return CommitLoop(Decider(table), [leg], Deadline.after(0.0, table.clock)).run()[table.location]


def settle_queue(table: CoordinatedTable, deadline: Deadline) -> None:
    """Wait until every slot that exists now is decided; a dead owner's is decided after a patience (I8).

    Raises OutcomeUnknown if the deadline passes before that.
    """
    context = table.context
    context.barrier()
    state = context.look()
    if state is None:
        raise context.missing_error()
    names = undecided(state.slots, state.head)
    if names:  # when the last one is decided, so are the others (I3)
        outcome_of(table, names[-1].transaction_id, deadline, after=state.head.version)
