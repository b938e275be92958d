"""The queue of a table: its slots, the intents in them, and how they are filed. What has a slot is decided, even if its owner dies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ...storage.constants import STAGED_FOLDER
from ...storage.dataclass import dataclass
from ...storage.errors import BadChecksum, CorruptLogFile, InvariantBroken, LogGap, MissingObject, NotATable, SluiceError
from ..errors import CoordinatorUnavailable, OutcomeUnknown, UnknownFormat
from ..formats import INTENT_FORMAT, MalformedRecord
from ..nodes.context import TableContext, TableState, undecided
from ..nodes.layout import SlotName, TableTree, newest_first
from ..nodes.records import BatchRecord, Head, read_intent
from ..publication.failure_points import point
from ..publication.publisher import all_put_away
from ..publication.ratified_log import RatifiedLog, staged_actions
from ..rules.intent import ClientName, Intent, Joint
from ..rules.intent_checks import INTENT_BYTES_MAX, require_sound
from ..rules.refusal import Refusal, refusal_error, withdrawal
from ..rules.winner import Member, Winner
from ..service.clock import Deadline
from ..service.store import ApplyRefused, CoordinationStore, Create, Node, Op, ReplyLost, Write
from .decision import Queued, windows_of
from .outcomes import Claim
from .table import CoordinatedTable

_PAUSE_S: Final = 0.1
_STAGED: Final = re.compile(re.escape(STAGED_FOLDER) + r"[A-Za-z0-9_-]{1,100}\.json")
"""The name of a staged object (`staged_path`): an intent that names another one is looked up nowhere."""
WINDOW_VERSIONS_MAX: Final = 10_000
"""The maximum number of versions read to decide one transaction."""


def find_slot(context: TableContext, transaction_id: str, head: Head) -> Claim | None:
    """The slot of a transaction in the head's generation, or None. No earlier one has slots: each is empty when the next one opens."""
    slots = filter(None, map(SlotName.parse, context.coordination.children(context.tree.slots(head.generation)) or ()))
    slot = min((slot for slot in slots if slot.transaction_id == transaction_id), default=None)
    return None if slot is None else Claim(transaction_id, head.generation, slot.sequence)


def claim_of(transaction_id: str, generation: int, path: str) -> Claim:
    """The claim on a slot, from the path that the coordinator gave it."""
    name = SlotName.parse(path.rpartition("/")[2])
    if name is None:
        raise InvariantBroken(f"the coordinator made a slot with the name {path}")
    return Claim(transaction_id, generation, name.sequence)


def read_queue(context: TableContext, state: TableState, withdrawn: str | None = None, own: Member | None = None) -> Sequence[Queued]:
    """The undecided slots with their intents, in slot order; empty if the head moved on meanwhile. `own` is as in `queued_in`.

    They end before one that only a newer release understands. Raises UnknownFormat if that is the first.
    """
    head = state.head
    names = undecided(state.slots, head)[: context.limits.batch_slots_max]
    nodes = context.coordination.read_many([context.tree.slot(head.generation, name) for name in names])
    queue: list[Queued] = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            # check: slots-that-vanish-stop-the-look (return () -> continue)
            return ()
        try:
            queue.append(queued_in(context, name, node, head, withdrawn, own))
        except UnknownFormat:
            # check: unknown-formats-stop-nobody-before-them (always)
            if not queue:
                raise
            break  # the slots before it can be decided
    return queue


def queued_in(
    context: TableContext, name: SlotName, node: Node, head: Head, withdrawn: str | None = None, own: Member | None = None
) -> Queued:
    """A slot's contents, with its actions. Raises UnknownFormat if only a newer release understands them.

    The transaction `withdrawn` is to be refused, since its owner withdraws it. An intent that says what this client filed itself is not
    checked: `own`, a plain append with its actions in it. Its files are all of this client's making, so it passes anyway.
    """
    # check: taken-back-alone (name.transaction_id == withdrawn -> withdrawn)
    against = withdrawal(name.transaction_id) if name.transaction_id == withdrawn else None
    try:
        # check: large-intents-are-not-read
        if len(node.data) > INTENT_BYTES_MAX:
            raise MalformedRecord(f"it has {len(node.data):,} bytes, but an intent has at most {INTENT_BYTES_MAX:,}")
        intent = read_intent(node.data, head)
        # check: slot-and-intent-are-of-one-id
        if intent.transaction_id != name.transaction_id:
            raise MalformedRecord(f"it names transaction {intent.transaction_id!r}, its slot {name.transaction_id!r}")
        # check: own-slots-are-compared (without and replace(own.intent, joint=intent.joint, filed_again=intent.filed_again) == intent)
        if own is not None and replace(own.intent, joint=intent.joint, filed_again=intent.filed_again) == intent:
            return Queued(name.sequence, name.transaction_id, replace(own, intent=intent), against=against)
        # check: large-intents-are-not-read
        if intent.staged and not _STAGED.fullmatch(intent.staged):
            raise MalformedRecord(f"it names its staged actions {intent.staged[:200]!r}, which is not the name of a staged object")
        actions = staged_actions(context, intent)
        # check: intents-are-checked (require_sound(intent, actions) -> None)
        member = Member(intent, actions, (), require_sound(intent, actions))
    # check: staged-actions-are-there (without MissingObject,)
    except (MalformedRecord, MissingObject, BadChecksum, CorruptLogFile) as problem:
        return Queued(name.sequence, name.transaction_id, None, str(problem), against)
    return Queued(name.sequence, name.transaction_id, member, against=against)


def with_winners(log: RatifiedLog, head: Head, queue: Sequence[Queued]) -> tuple[Sequence[Queued], Mapping[int, Winner]]:
    """The queue, and the versions it must be decided against.

    A transaction is refused if it knows so little that too many versions would have to be read, or some that the log no longer has.
    """
    oldest = head.version - WINDOW_VERSIONS_MAX
    while True:
        windows = windows_of(head, queue)
        start = min(windows, default=head.version)
        if start < oldest:
            queue = [_unknowing(each, head) if window < oldest else each for each, window in zip(queue, windows, strict=True)]
            continue
        try:
            return queue, {w.version: w for w in log.winners(range(start + 1, head.version + 1))}
        except LogGap as gap:
            if gap.version <= start:
                raise
            oldest = gap.version


def _unknowing(queued: Queued, head: Head) -> Queued:
    """The slot of a transaction that knows too little."""
    through = queued.member.intent.validated_through if queued.member is not None else -1
    problem = f"it was validated up to version {through} only, and cannot be decided at {head.version}"
    return replace(queued, member=None, problem=problem)


# -- filing: one multi makes the slots of a transaction in all of its tables, and from then on it will be decided --------


@dataclass(frozen=True, slots=True)
class Filing:
    """The intent that a transaction files in one table."""

    table: CoordinatedTable
    member: Member
    """The intent with its footprint; without its actions if they are staged."""
    head: Head | None = None
    """The table's head as the caller read it, if it did."""


def file_intents(filings: Sequence[Filing], deadline: Deadline, away: CoordinatorUnavailable | None = None) -> list[Claim | None]:
    """File the intents of one transaction, in all of its tables or in none; returns its slots, in the order of the filings.

    After a lost reply nothing is blindly sent again: a barrier settles whether the first request took effect, then the transaction is
    looked for among the slots and the verdicts. None means that the slot is gone because it was decided. `away` is the caller's trouble, if
    it found the coordinator away. Raises OutcomeUnknown if the deadline passes, CoordinatorUnavailable if it passes while the coordinator
    is away (`stage` says whether the intents may be filed), TransactionExpired if its owner was taken for dead, and its refusal.
    """
    lead, transaction_id = filings[0].table.context, filings[0].member.intent.transaction_id
    filed_again = filings[0].member.intent.filed_again  # all of them were, or none
    heads = [filing.head for filing in filings]
    current: list[Head] = []
    sent_to: Sequence[CoordinatedTable] = ()
    point("before-claim")
    while True:
        if deadline.over:
            raise _too_late(transaction_id, sent_to, away) from away
        try:
            current = [_ready(filing.table.context, head, deadline) for filing, head in zip(filings, heads, strict=True)]
            heads = list(current)
            # check: slots-in-all-tables-or-none (lead.coordination.apply -> (lambda s: [lead.coordination.apply([op])[0] for op in s]))
            paths = lead.coordination.apply(_filing_ops(filings, current, filed_again=filed_again))[-len(filings) :]
            point("after-claim")
            return [claim_of(transaction_id, head.generation, str(path)) for head, path in zip(current, paths, strict=True)]
        except ReplyLost:
            claims = lead.after_lost_reply(transaction_id, partial(_filed, filings, current))
            # check: slot-is-looked-for
            if any(claims):
                point("after-claim")
                return claims
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
    joint = Joint(tuple([each.table.location for each in filings])) if len(filings) > 1 else None
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
    claims = [find_slot(each.table.context, transaction_id, head) for each, head in zip(filings, heads, strict=True)]
    refusals = () if any(claims) else (each.table.verdicts.refusal_of(transaction_id) for each in filings)
    refusal = next(filter(None, refusals), None)
    # check: refused-stays-refused
    if refusal is not None:
        raise refusal_error(refusal, transaction_id)
    return claims


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
        context.require_here()
        raise NotATable(f"the coordinator knows no table at {context.tree.location} (any more)", location=context.tree.location)
    return state[0]


def _ready(context: TableContext, head: Head | None, deadline: Deadline) -> Head:
    """The table's head, once intents of this release can be filed beside it.

    It says that writers of the table file this release's format: older releases would take such an intent for made up. Its generation has
    slots that can be numbered: ZooKeeper's counter is a signed 32-bit number. When no slot is left undecided, another generation is opened.
    A client waits for that at most for its patience: the owner of a slot may be dead, and only who has a later one decides it then.
    `Limits` leaves a thousand million numbers for those who cannot wait.
    """
    head = head or _head_of(context)
    # check: formats-are-admitted-first (while -> while False and)
    while head.intents < INTENT_FORMAT:
        state = context.read_head()
        if state is None:
            raise context.missing_error()
        head, node = state
        raised = replace(head, intents=max(head.intents, INTENT_FORMAT))
        if _applied(context, [Write(context.tree.head, raised.encode(), node.version)]):
            head = raised  # else another client decided something, or made the same update
    limit = Deadline.after(min(context.limits.patience_s, deadline.left_s), context.clock)
    # check: generations-end (while -> while False and)
    while head.slot + 1 >= context.limits.generation_slots_max and not limit.over:
        seen = context.look()
        if seen is None:
            raise context.missing_error()
        ops = seen.next_generation(context.tree)
        if ops:
            _applied(context, ops)
        elif seen.head.generation == head.generation:
            context.clock.sleep(min(_PAUSE_S, limit.left_s))
        head = _head_of(context)
    return head


def _applied(context: TableContext, ops: Sequence[Op]) -> bool:
    """Whether the tree that this client knows was changed so. If not, or if the reply was lost, the next look shows what there is."""
    try:
        context.coordination.apply([*ops, *context.liveness_checks()])
    except ApplyRefused as refused:
        context.was_restored(getattr(refused.cause, "path", ""))
    except ReplyLost:
        context.barrier()
    else:
        return True
    return False


def _too_late(transaction_id: str, sent_to: Sequence[CoordinatedTable], away: CoordinatorUnavailable | None) -> SluiceError:
    """The error if the time of a transaction without slots is over; `away` if the coordinator was away until then.

    It is certainly not filed, unless the reply to a request was lost: then the verdicts of the tables that it was `sent_to` show it.
    """
    # check: any-table-may-know-it (in sent_to -> in sent_to[:1])
    if sent_to and (away is not None or any(table.verdicts.knows(transaction_id) for table in sent_to)):
        return OutcomeUnknown(
            f"the coordinator's replies were lost while transaction {transaction_id} was filed, until the time ran out; "
            "ask outcome(transaction_id)",
            transaction_id=transaction_id,
            stage="intent",
        )
    if away is not None:
        return CoordinatorUnavailable(
            f"no slot could be claimed for transaction {transaction_id} in time ({away}); nothing is decided, the staged "
            "data is kept and commit may be called again",
            transaction_id=transaction_id,
            stage="staged",
        )
    return OutcomeUnknown(
        f"the time given was over before transaction {transaction_id} was filed: nothing is decided or visible, its staged data are "
        "kept, and commit may be called again",
        transaction_id=transaction_id,
        stage="staged",
    )


# -- lists for people: the undecided transactions of a table, and those that were refused ------------------------------


@dataclass(frozen=True, slots=True)
class QueuedTransaction:
    """An undecided transaction in its `slot` of the queue; `operation` is "" if this release cannot read its intent.

    `claimed_ms` is the time of its slot by its owner's clock, `tables` are the locations of a transaction over several.
    """

    slot: int
    transaction_id: str
    operation: str = ""
    client: ClientName = ClientName()
    claimed_ms: int | None = None
    read_version: int | None = None
    isolation: str = ""
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedTransaction:
    """A transaction that was refused when its turn came, at about the time `decided_ms`."""

    transaction_id: str
    refusal: Refusal
    decided_ms: int


def read_waiting(
    session: CoordinationStore, tree: TableTree, head: Head, names: Sequence[SlotName]
) -> Iterator[tuple[SlotName, Node, Intent | None]]:
    """Those of these slots that are not decided yet, with their intents: None for one that this release cannot read."""
    nodes = session.read_many([tree.slot(head.generation, name) for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            try:
                yield name, node, read_intent(node.data, head)
            except (MalformedRecord, UnknownFormat):
                yield name, node, None


def list_queue(context: TableContext) -> list[QueuedTransaction]:
    """The undecided transactions, in the order in which they will be decided. Decides nothing."""
    state = state_now(context)
    waiting: list[QueuedTransaction] = []
    for name, _, intent in read_waiting(context.coordination, context.tree, state.head, undecided(state.slots, state.head)):
        if intent is None:
            waiting.append(QueuedTransaction(name.sequence, name.transaction_id))
            continue
        tables = () if intent.joint is None else intent.joint.tables
        described = (intent.operation, intent.client, intent.claimed_ms, intent.read_version, intent.isolation, tables)
        waiting.append(QueuedTransaction(name.sequence, intent.transaction_id, *described))
    return waiting


def list_refused(context: TableContext) -> list[RefusedTransaction]:
    """The refusals on record, newest first: those of the last days that were decided in the queue."""
    state = state_now(context)
    nodes = context.coordination.read_many([context.tree.verdict(name) for name in newest_first(state.records) if name.refusals])
    records = [BatchRecord.decode(node.data) for node in nodes if node is not None]
    refused = {
        verdict.transaction_id: RefusedTransaction(verdict.transaction_id, verdict.refusal, record.rendering.ratified_ms)
        for record in (*all_put_away(context), *records)
        for verdict in record.verdicts
        if verdict.refusal is not None
    }
    return sorted(refused.values(), key=lambda each: each.decided_ms, reverse=True)


def state_now(context: TableContext) -> TableState:
    """The table's state, not older than anything acknowledged before this call. Raises the error for a table that is gone."""
    context.barrier()
    state = context.look()
    if state is None:
        raise context.missing_error()
    return state
