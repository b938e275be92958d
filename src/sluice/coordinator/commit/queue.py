"""Reads a table's queue, and makes the records of its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...storage.actions.texts import Text
from ...storage.errors import BadChecksum, CorruptLogFile, LogGap, MissingObject
from ..errors import UnknownFormat
from ..fields import MalformedRecord
from ..nodes.context import TableContext, TableState
from ..nodes.layout import SlotName, VerdictName
from ..nodes.records import NO_SLOT, BatchRecord, Head, Rendering, digest, read_intent
from ..publication.ratified_log import RatifiedLog, staged_actions
from ..publication.rendering import render
from ..rules.intent import Intent
from ..rules.intent_checks import require_readable, require_sound
from ..rules.winner import Member, Winner
from ..service.store import Create, Node, Op, Write
from .claims import undecided
from .decision import Decision, Queued, window_start, windows_of

__all__ = ["WINDOW_VERSIONS_MAX", "batch_of", "queued_in", "ratifying_ops", "read_queue", "record_name", "with_winners"]

WINDOW_VERSIONS_MAX: Final = 10_000
"""The maximum number of versions read to decide one transaction."""


def read_queue(context: TableContext, state: TableState) -> Sequence[Queued]:
    """The undecided slots with their intents, in slot order; empty if the head moved on meanwhile.

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
            queue.append(queued_in(context, name, node, head))
        except UnknownFormat:
            # check: unknown-formats-stop-nobody-before-them (always)
            if not queue:
                raise
            break  # the slots before it can be decided
    return queue


def queued_in(context: TableContext, name: SlotName, node: Node, head: Head) -> Queued:
    """A slot's contents, with its actions. Raises UnknownFormat if only a newer release understands them."""
    try:
        # check: large-intents-are-not-read
        require_readable(node.data)
        intent = read_intent(node.data, head)
        # check: slot-and-intent-are-of-one-id
        if intent.transaction_id != name.transaction_id:
            raise MalformedRecord(f"it names transaction {intent.transaction_id!r}, its slot {name.transaction_id!r}")
        # check: large-intents-are-not-read
        require_readable(node.data, intent)
        member = Member(intent, staged_actions(context, intent))
        # check: intents-are-compared-with-their-actions
        require_sound(intent, member.actions)
    # check: staged-actions-are-there (without MissingObject,)
    except (MalformedRecord, MissingObject, BadChecksum, CorruptLogFile) as problem:
        return Queued(name.sequence, name.transaction_id, None, str(problem))
    return Queued(name.sequence, name.transaction_id, member)


def with_winners(log: RatifiedLog, head: Head, queue: Sequence[Queued]) -> tuple[Sequence[Queued], Mapping[int, Winner]]:
    """The queue, and the versions it must be decided against.

    A transaction is refused if it knows so little that too many versions would have to be read, or some that the log no
    longer has: its owner knew more when it was filed.
    """
    queue = _knowing(queue, head, head.version - WINDOW_VERSIONS_MAX)
    while True:
        try:
            return queue, {w.version: w for w in log.winners(range(window_start(head, queue) + 1, head.version + 1))}
        except LogGap as gap:
            known = _knowing(queue, head, gap.version)
            if known == queue:
                raise
            queue = known


def _knowing(queue: Sequence[Queued], head: Head, version: int) -> list[Queued]:
    """The slots, with a problem for those that need versions after one before this."""
    windows = windows_of(head, queue)
    return [each if window >= version else _too_old(each, head) for each, window in zip(queue, windows, strict=True)]


def _too_old(queued: Queued, head: Head) -> Queued:
    known = queued.member.intent.validated_through if queued.member is not None else -1
    return replace(queued, member=None, problem=f"it was validated up to version {known} only, and cannot be decided at {head.version}")


def batch_of(
    decision: Decision, before: Head, by: Rendering, batch_id: str, direct: Intent | None = None
) -> tuple[BatchRecord, Mapping[int, Text]]:
    """The record of a decision on top of the head `before` it, and the content of each version it makes.

    `direct` is an intent without a slot: the record contains it.
    """
    contents = {p.version: render(p, decision.members[p.version], by) for p in decision.versions}
    record = BatchRecord(
        batch_id=batch_id,
        generation=before.generation,
        rendering=by,
        verdicts=decision.verdicts,
        versions=tuple(replace(p, digest=digest(contents[p.version])) for p in decision.versions),
        closes_generation=decision.head.generation != before.generation,
        direct="" if direct is None else direct.encode().decode(),
    )
    return record, contents


def record_name(record: BatchRecord, before: Head) -> VerdictName:
    """The name of a batch's record: the last slot and version it decided, on top of the head `before` it."""
    version = before.version if record.last_version is None else record.last_version
    refusals = any(v.refusal is not None or v.repeats for v in record.verdicts)
    slot = record.verdicts[-1].slot
    return VerdictName(record.generation, before.slot if slot == NO_SLOT else slot, version, refusals)


def ratifying_ops(context: TableContext, after: Head, before: Node, name: VerdictName, record: BatchRecord) -> list[Op]:
    """The operations that record a batch, if the head is still the one it was computed from (I1)."""
    tree = context.tree
    # check: head-is-compared (before.version -> -1)
    ops: list[Op] = [Write(tree.head, after.encode(), before.version), Create(tree.verdict(name), record.encode())]
    if after.generation != record.generation:
        ops.append(Create(tree.slots(after.generation)))
    return ops
