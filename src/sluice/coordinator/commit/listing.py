"""Lists for people: the undecided transactions of a table, and those that were refused."""

from __future__ import annotations

from ...storage.dataclass import dataclass
from ..errors import UnknownFormat
from ..formats import MalformedRecord
from ..nodes.context import TableContext, TableState
from ..nodes.layout import newest_first
from ..nodes.records import BatchRecord, read_intent
from ..publication.publisher import all_put_away
from ..rules.intent import ClientName, Intent
from ..rules.refusal import Refusal
from .queue import undecided


@dataclass(frozen=True, slots=True)
class Queued:
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


def list_queue(context: TableContext) -> list[Queued]:
    """The undecided transactions, in the order in which they will be decided. Decides nothing."""
    state = _state(context)
    names = undecided(state.slots, state.head)
    nodes = context.coordination.read_many([context.tree.slot(state.head.generation, name) for name in names])
    waiting: list[Queued] = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue  # decided since the look
        try:
            waiting.append(_queued(name.sequence, read_intent(node.data, state.head)))
        except (MalformedRecord, UnknownFormat):
            waiting.append(Queued(name.sequence, name.transaction_id))
    return waiting


def _queued(slot: int, intent: Intent) -> Queued:
    tables = () if intent.joint is None else intent.joint.tables
    return Queued(
        slot, intent.transaction_id, intent.operation, intent.client, intent.claimed_ms, intent.read_version, intent.isolation, tables
    )


def list_refused(context: TableContext) -> list[RefusedTransaction]:
    """The refusals on record, newest first: those of the last days that were decided in the queue."""
    state = _state(context)
    nodes = context.coordination.read_many([context.tree.verdict(name) for name in newest_first(state.records) if name.refusals])
    records = [BatchRecord.decode(node.data) for node in nodes if node is not None]
    refused = {
        verdict.transaction_id: RefusedTransaction(verdict.transaction_id, verdict.refusal, record.rendering.ratified_ms)
        for record in (*all_put_away(context), *records)
        for verdict in record.verdicts
        if verdict.refusal is not None
    }
    return sorted(refused.values(), key=lambda each: each.decided_ms, reverse=True)


def _state(context: TableContext) -> TableState:
    context.barrier()
    state = context.look()
    if state is None:
        raise context.missing_error()
    return state
