"""Filing a transaction: one multi makes its slots in all of its tables, and from then on it will be decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...storage.dataclass import dataclass
from ...storage.errors import NotATable
from ..errors import CoordinatorUnavailable, OutcomeUnknown
from ..formats import INTENT_FORMAT
from ..nodes.context import TableContext
from ..nodes.records import Head
from ..publication.failure_points import point
from ..rules.intent import Joint
from ..rules.winner import Member
from ..service.clock import Deadline
from ..service.store import ApplyRefused, Create, Op, ReplyLost, Write
from .queue import Claim, claim_of, find_slot, open_generation, undecided
from .table import CoordinatedTable

_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Filing:
    """The intent that a transaction files in one table."""

    table: CoordinatedTable
    member: Member
    """The intent with its footprint; without its actions if they are staged."""
    head: Head | None = None
    """The table's head as the caller read it, if it did."""


def require_time(transaction_id: str, deadline: Deadline, *, sent_to: Sequence[CoordinatedTable] = ()) -> None:
    """Raise OutcomeUnknown if the time of a transaction without slots is over.

    It is certainly not filed, unless a request that filed it was sent and the reply was lost: then the verdicts of the
    tables that it was `sent_to` show whether it was decided and cleaned up already.
    """
    if not deadline.over:
        return
    # check: any-table-may-know-it (in sent_to -> in sent_to[:1])
    if any(table.verdicts.knows(transaction_id) for table in sent_to):
        raise _in_doubt(transaction_id)
    raise OutcomeUnknown(
        f"the time given was over before transaction {transaction_id} was filed: nothing is decided or visible, its staged data are "
        "kept, and commit may be called again",
        transaction_id=transaction_id,
        stage="staged",
    )


def file_intents(filings: Sequence[Filing], deadline: Deadline, away: CoordinatorUnavailable | None = None) -> list[Claim | None]:
    """File the intents of one transaction, in all of its tables or in none; returns its slots, in the order of the filings.

    After a lost reply nothing is blindly sent again: a barrier settles whether the first request took effect, then the
    transaction is looked for among the slots and the verdicts. None means that the slot is gone because it was decided.
    `away` is the caller's trouble, if it found the coordinator away.
    Raises OutcomeUnknown if the deadline passes, CoordinatorUnavailable if it passes while the coordinator is away (`stage`
    says whether the intents may be filed), TransactionExpired if the transaction's owner was taken for dead, and its
    refusal.
    """
    lead, transaction_id = filings[0].table.context, filings[0].member.intent.transaction_id
    filed_again = any(filing.member.intent.filed_again for filing in filings)
    heads = [filing.head for filing in filings]
    current: list[Head] = []
    sent_to: Sequence[CoordinatedTable] = ()
    point("before-claim")
    while True:
        if away is not None and deadline.over:
            raise (_in_doubt(transaction_id) if sent_to else _away(transaction_id, away)) from away
        require_time(transaction_id, deadline, sent_to=sent_to)
        try:
            # check: formats-are-admitted-first (_admitting(filing.table.context, head) -> head or _head_of(filing.table.context))
            current = [_admitting(filing.table.context, head) for filing, head in zip(filings, heads, strict=True)]
            current = [_with_slots_left(filing.table.context, head, deadline) for filing, head in zip(filings, current, strict=True)]
            heads = list(current)
            # check: slots-in-all-tables-or-none (lead.coordination.apply -> (lambda s: [lead.coordination.apply([op])[0] for op in s]))
            paths = lead.coordination.apply(_filing_ops(filings, current, filed_again=filed_again))[-len(filings) :]
            point("after-claim")
            return [claim_of(transaction_id, head.generation, str(path)) for head, path in zip(current, paths, strict=True)]
        except ReplyLost:
            found = lead.after_lost_reply(transaction_id, partial(_filed, filings, current))
            # check: slot-is-looked-for
            if any(found):
                point("after-claim")
                return found
            # either it never took effect, or it was committed and cleaned up already: the decision will look for that
            # check: filed-again-is-said (True -> filed_again)
            filed_again, sent_to, away = True, [filing.table for filing in filings], None
        except ApplyRefused as refused:
            if not lead.after_refusal(refused, transaction_id):  # another generation of slots was opened
                heads = _newer_heads(filings, current, refused)
            away = None
        except CoordinatorUnavailable as trouble:  # nothing was sent
            away = trouble
            lead.clock.sleep(min(_PAUSE_S, deadline.left_s))


def _filing_ops(filings: Sequence[Filing], heads: Sequence[Head], *, filed_again: bool) -> list[Op]:
    """The operations that make the slots, with checks of the trees and the transaction's owner (I11)."""
    joint = Joint(tuple(each.table.location for each in filings)) if len(filings) > 1 else None
    standing: list[Op] = []
    slots: list[Op] = []
    for filing, head in zip(filings, heads, strict=True):
        context, intent = filing.table.context, filing.member.intent
        # check: filed-while-the-owner-stands (None if slots else intent.transaction_id -> None)
        standing += context.liveness_checks(None if slots else intent.transaction_id)
        filed = intent if joint is None and filed_again == intent.filed_again else replace(intent, joint=joint, filed_again=filed_again)
        slots.append(Create(context.tree.slot_prefix(head.generation, intent.transaction_id), filed.encode(), sequential=True))
    return [*standing, *slots]


def _filed(filings: Sequence[Filing], heads: Sequence[Head]) -> list[Claim | None]:
    """The slots made by a request whose reply was lost. Raises the transaction's refusal, if that came first."""
    transaction_id = filings[0].member.intent.transaction_id
    found = [find_slot(each.table.context, transaction_id, head) for each, head in zip(filings, heads, strict=True)]
    if not any(found):
        for each in filings:
            # check: refused-stays-refused
            each.table.verdicts.raise_refusal(transaction_id)
    return found


def _newer_heads(filings: Sequence[Filing], heads: Sequence[Head], refused: ApplyRefused) -> list[Head | None]:
    """The heads after a multi was refused. Raises NotATable if none of them moved: then nodes of a table are missing."""
    newer: list[Head | None] = []
    brought_back = False
    for filing in filings:
        brought_back |= filing.table.context.was_restored(getattr(refused.cause, "path", ""))
        newer.append(_head_of(filing.table.context))
    if newer == list(heads) and not brought_back:
        path = str(getattr(refused.cause, "path", ""))
        table = next((each.table for each in filings if path.startswith(each.table.context.tree.root)), filings[0].table)
        raise NotATable(f"the coordinator's tree of {table.location} is gone or incomplete", location=table.location)
    return newer


def _head_of(context: TableContext) -> Head:
    state = context.read_head()
    if state is None:
        raise NotATable(f"the coordinator knows no table at {context.tree.location} (any more)", location=context.tree.location)
    return state[0]


def _admitting(context: TableContext, head: Head | None) -> Head:
    """The table's head, updated if necessary to say that its writers file intents of this release's format.

    Older releases then know that such an intent is for newer releases, and not made up.
    """
    head = head or _head_of(context)
    while head.intents < INTENT_FORMAT:
        state = context.read_head()
        if state is None:
            raise context.missing_error()
        head, node = state
        raised = replace(head, intents=max(head.intents, INTENT_FORMAT))
        try:
            context.coordination.apply([Write(context.tree.head, raised.encode(), node.version), *context.liveness_checks()])
        except ApplyRefused as refused:  # another client decided something, or made the same update
            context.was_restored(getattr(refused.cause, "path", ""))
        except ReplyLost:
            context.barrier()
        else:
            return raised
    return head


def _with_slots_left(context: TableContext, head: Head, deadline: Deadline) -> Head:
    """The table's head, of a generation whose slots can be numbered: ZooKeeper's counter is a signed 32-bit number.

    The next client that files in a generation without numbers opens another one when no slot is left. It waits for that at most for its
    patience: the owner of a slot may be dead, and only who has a later one decides it then. `Limits` leaves a thousand million numbers
    for those who cannot wait.
    """
    limit = Deadline.after(min(context.limits.patience_s, deadline.left_s), context.clock)
    # check: generations-end (while -> while False and)
    while head.slot + 1 >= context.limits.generation_slots_max and not limit.over:
        state = context.look()
        if state is None:
            raise context.missing_error()
        # check: generations-are-drained (without not undecided(state.slots, state.head) and)
        # check: generations-open-when-published (without and state.is_published)
        if not undecided(state.slots, state.head) and state.is_published:
            open_generation(context, state)
        elif state.head.generation == head.generation:
            context.clock.sleep(min(_PAUSE_S, limit.left_s))
        head = _head_of(context)
    return head


def _in_doubt(transaction_id: str) -> OutcomeUnknown:
    """The error if the time is over and, after lost replies, it is unknown whether the transaction was filed."""
    return OutcomeUnknown(
        f"the coordinator's replies were lost while transaction {transaction_id} was filed, until the time ran out; "
        "ask outcome(transaction_id)",
        transaction_id=transaction_id,
        stage="intent",
    )


def _away(transaction_id: str, trouble: CoordinatorUnavailable) -> CoordinatorUnavailable:
    """The error if the coordinator was away until the time was over, and nothing was filed."""
    return CoordinatorUnavailable(
        f"no slot could be claimed for transaction {transaction_id} in time ({trouble}); nothing is decided, the staged "
        "data is kept and commit may be called again",
        transaction_id=transaction_id,
        stage="staged",
    )
