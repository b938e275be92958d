"""Ratification: one multi records decisions on the heads they were computed from, in all tables or in none (I1, I11)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

from ...storage.actions.texts import Text, sha256
from ...storage.dataclass import dataclass
from ..nodes.context import TableState
from ..nodes.layout import VerdictName
from ..nodes.records import NO_SLOT, BatchRecord, is_batch
from ..publication.failure_points import point
from ..publication.ratified_log import store_objects
from ..publication.rendering import render
from ..rules.intent import Intent
from ..service.store import ApplyRefused, Check, Create, Node, Op, ReplyLost, Write
from .decision import Decision
from .table import CoordinatedTable


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
        version = before.version if record.last_version is None else record.last_version
        refusals = any(v.refusal is not None or v.repeats for v in record.verdicts)
        slot = record.verdicts[-1].slot
        return VerdictName(record.generation, before.slot if slot == NO_SLOT else slot, version, refusals)

    def publish(self) -> bool:
        """Publish it; returns whether it is certainly published now.

        Another client may be publishing earlier versions: it continues with this batch, or patience ends.
        """
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
    by, batch_id = decisions[0][0].context.rendering(), uuid.uuid4().hex
    batches: list[Batch] = []
    for table, state, decision in decisions:
        store_objects(table.context, decision.objects)
        contents = {plan.version: render(plan, decision.members[plan.version], by) for plan in decision.versions}
        record = BatchRecord(
            batch_id=batch_id,
            generation=state.head.generation,
            rendering=by,
            verdicts=decision.verdicts,
            versions=tuple(replace(plan, digest=sha256(contents[plan.version])) for plan in decision.versions),
            direct="" if direct is None else direct.encode().decode(),
        )
        batches.append(Batch(table, state, decision, record, contents))
    return batches


def ratify(batches: Sequence[Batch], checks: Sequence[Check], filing: str | None = None) -> Ratified:
    """Record batches if the heads are those they were computed from (I1), and the leases they rely on are held (I9).

    `filing` is a transaction that is filed with its verdict: its owner's node must exist, too. Raises OutcomeUnknown if that
    is in doubt because the coordinator went away.
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
        node = _after_lost_reply(batches[0], filing)
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


def _after_lost_reply(batch: Batch, filing: str | None) -> Node | None:
    """The record under a batch's name, once the request has certainly taken effect or never will."""
    context = batch.table.context
    look: Callable[[], Node | None] = lambda: context.coordination.read(context.tree.verdict(batch.name))  # noqa: E731
    if filing is not None:
        return context.after_lost_reply(filing, look)
    # check: barrier-after-a-lost-ratification
    context.coordination.barrier()
    return look()
