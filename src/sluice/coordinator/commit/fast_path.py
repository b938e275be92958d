"""The fast path: with an empty queue, an intent and its verdict are written in the same multi, one round trip.

The intent travels in the verdict record instead of a slot. It goes by the same decision and the same compare-and-set on
the head as every other; when anything is in its way (somebody waits, something is in publication, another client was
faster, a conflict), nothing was written and the transaction claims a slot like everybody else. A slot that was created
after the look at the queue may so be passed by one such commit; it is not passed by a second one of a client that sees it.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from ...storage.actions.texts import Text
from ...storage.dataclass import dataclass
from ..leases.guard import LeaseGuard, LeaseView
from ..nodes.context import TableContext, TableState
from ..nodes.layout import VerdictName
from ..nodes.records import NO_SLOT, BatchRecord, Head, is_batch
from ..rules.intent import Intent
from ..rules.winner import Member
from ..service.store import ApplyRefused, Create, Op, ReplyLost, Write
from .claims import undecided
from .decision import Queued, resolve, window_start
from .failure_points import point
from .ratified_log import RatifiedLog, store_objects
from .rendering import render, version_digest

__all__ = ["Direct", "ratify_directly"]


@dataclass(frozen=True, slots=True)
class Direct:
    """A transaction ratified without a slot, and what it was ratified on."""

    record: BatchRecord
    before: TableState


def ratify_directly(context: TableContext, log: RatifiedLog, guard: LeaseGuard, intent: Intent) -> Direct | None:
    """Ratify the intent in one multi, or None when it has to queue: then nothing was written.

    Raises ReplyLost when it cannot be told here whether the multi took effect, OutcomeUnknown when the coordinator went away
    before even that was known.
    """
    if intent.staged:
        return None
    state = context.looked()
    if state is None or not state.is_published or state.head.slot + 1 >= context.limits.generation_slots_max:
        return None
    head = state.head
    if undecided(state.slots, head):
        return None
    leases = guard.view((intent,))
    record, after, content = _decide(context, log, leases, intent, head)
    if record is None:
        return None
    name = VerdictName(head.generation, head.slot, after.version, refusals=False)
    ops: list[Op] = [Write(context.tree.head, after.encode(), state.head_node.version), Create(context.tree.verdict(name), record.encode())]
    ops += leases.checks((intent,), ())
    ops += context.standing(intent.transaction_id)
    point("before-ratify")
    if not _apply(context, guard, ops, context.tree.verdict(name), record, intent.transaction_id):
        return None
    point("after-ratify")
    log.remember(after.version, content)
    return Direct(record, state)


def _decide(
    context: TableContext, log: RatifiedLog, leases: LeaseView, intent: Intent, head: Head
) -> tuple[BatchRecord | None, Head, Text]:
    member = Member(intent, intent.actions.encode())
    queue = [Queued(head.slot + 1, intent.transaction_id, member)]
    winners = {w.version: w for w in log.winners(range(window_start(head, queue) + 1, head.version + 1))}
    decision = resolve(head, queue, winners, context.limits, room=1, lookup=log.rows, leases=leases)
    if len(decision.versions) != 1:
        return None, head, b""  # a refusal or a repetition: the queue gives the verdict that stays on record
    store_objects(context, decision.objects)
    by = context.rendering()
    plan = decision.versions[0]
    plan = replace(plan, slots=(NO_SLOT,), rebased=tuple(replace(each, slot=NO_SLOT) for each in plan.rebased))
    content = render(plan, decision.members[plan.version], by)
    record = BatchRecord(
        batch_id=uuid.uuid4().hex,
        generation=head.generation,
        rendering=by,
        verdicts=(replace(decision.verdicts[0], slot=NO_SLOT),),
        versions=(replace(plan, digest=version_digest(content)),),
        direct=intent.encode().decode(),
    )
    return record, replace(decision.head, slot=head.slot), content


def _apply(context: TableContext, guard: LeaseGuard, ops: list[Op], verdict_path: str, record: BatchRecord, transaction_id: str) -> bool:
    try:
        context.coordination.apply(ops)
    except ApplyRefused as refused:
        guard.was_outdated(refused, ops)
        context.recognise_again(getattr(refused.cause, "path", ""))
        return False
    except ReplyLost:
        node = context.after_lost_reply(transaction_id, lambda: context.coordination.read(verdict_path))
        if node is None:
            raise  # it never took effect, or so much was committed since then that its record is pruned
        return is_batch(node.data, record.batch_id)
    return True
