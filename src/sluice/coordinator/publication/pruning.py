"""Pruning: verdict records are removed after enough later ones; verdicts that no version shows are kept separately (I10).

Both happen in the multi that raises `published`. Only raises remove records, and each compares `published` with the value
that its client read before it listed the records, so two clients never remove the same records. A refusal must be available
for days: it is stored by its transaction's GUID under the day of that GUID, where two requests find it among any number, and
where whole days are removed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from ...storage.errors import SluiceError
from ..nodes.context import TableContext
from ..nodes.layout import VerdictName
from ..nodes.records import BatchRecord, Published
from ..service.store import Create, Delete, Op, Write, request_bytes

FORGET_EVERY: Final = 64
"""How many raises of `published` there are between two looks for expired refusals."""

_log = logging.getLogger(__name__)
_DAY_MS: Final = 24 * 3600 * 1000
_RECORDS_AT_ONCE: Final = 8
"""Records removed by one raise. It adds one record, so a backlog shrinks."""
_NODES_AT_ONCE: Final = 64
_BYTES_AT_ONCE: Final = 600_000
"""Maximum size of one raise: ZooKeeper accepts 1 MB, including access lists. A few hundred long paths fill that."""
_FORGOTTEN_AT_ONCE: Final = 32_768
"""Refusals removed by one call: as many as the largest batches can add in the meantime."""


def spare(names: Sequence[str], published: Published, kept: int) -> list[VerdictName]:
    """The oldest of these records, a few at once, if they are published and not among the last `kept`.

    Any number may be unpublished: transactions that only read the table need no room to be ratified.
    """
    reached = (published.generation, published.slot, published.version)
    # check: records-go (max(0, len(names) - kept) -> 0)
    oldest = sorted(names)[: max(0, len(names) - kept)][:_RECORDS_AT_ONCE]  # numbers have leading zeros
    found = filter(None, map(VerdictName.parse, oldest))
    # check: records-are-kept (without if (name.generation, name.slot, name.version) <= reached)
    return [name for name in found if (name.generation, name.slot, name.version) <= reached]


def put_away(context: TableContext, record: BatchRecord) -> list[Op]:
    """The operations that store a batch's verdicts that no version shows; most batches have none. Those too many for one multi run here.

    Repeating it changes nothing.
    """
    kept = {v.transaction_id: v for v in record.verdicts if v.refusal is not None or v.repeats}
    if not kept:
        return []
    tree, today = context.tree, context.clock.now_ms() // _DAY_MS
    alone = {
        tree.refusal(today, transaction_id): replace(record, verdicts=(verdict,), versions=(), direct="").encode()
        for transaction_id, verdict in kept.items()
    }
    parents = [tree.refused, tree.refused_on(today)]
    all_days, day, *there = context.coordination.read_many([*parents, *alone])
    # The old node may have been removed by hand, which must not stop publication for ever.
    # check: the-node-for-refusals-is-made-again (parents, (all_days, day) -> parents[-1:], (day,))
    ops: list[Op] = [Create(path) for path, known in zip(parents, (all_days, day), strict=True) if known is None]
    ops += [
        Create(path, data) if known is None else Write(path, data, known.version)
        for (path, data), known in zip(alone.items(), there, strict=True)
    ]
    *whole, last = _pieces(ops)
    for some in whole:
        context.coordination.apply([*some, *context.liveness_checks()])
    return list(last)


def fitting(first: Sequence[Op], rest: Sequence[Op]) -> tuple[Sequence[Op], Sequence[Op]]:
    """The operations of `rest` that fit into one multi with `first`, and the others."""
    sizes = accumulate((request_bytes([op]) for op in rest), initial=request_bytes(first))
    count = max(0, sum(size <= _BYTES_AT_ONCE for size in sizes) - 1)
    return rest[:count], rest[count:]


def find_put_away(context: TableContext, transaction_id: str) -> BatchRecord | None:
    """The separately stored verdict on a transaction, as a record of its own; the latest of several, None without one."""
    paths = [context.tree.refusal(day, transaction_id) for day in sorted(_days(context), reverse=True)]
    node = next(filter(None, context.coordination.read_many(paths)), None)
    return None if node is None else BatchRecord.decode(node.data)


def all_put_away(context: TableContext) -> list[BatchRecord]:
    """The separately stored verdicts of the last days, each as a record of its own."""
    days = [context.tree.refused_on(day) for day in _days(context)]
    paths = [f"{day}/{name}" for day in days for name in context.coordination.children(day) or ()]
    return [BatchRecord.decode(node.data) for node in context.coordination.read_many(paths) if node is not None]


def forget(context: TableContext) -> None:
    """Remove expired refusals, off the commit path; failures are left to the next time."""
    first_kept = context.clock.now_ms() // _DAY_MS - math.ceil(context.limits.refusals_kept_s * 1000 / _DAY_MS)
    left = _FORGOTTEN_AT_ONCE
    try:
        for day in sorted(_days(context)):
            if day < first_kept and left > 0:
                left -= _forget(context, context.tree.refused_on(day), left)
    except SluiceError as trouble:
        _log.debug("old refusals of %s are left to another client: %s", context.tree.location, trouble)


def _forget(context: TableContext, day: str, most: int) -> int:
    """Remove up to `most` refusals of a day, and with the last of them the day; returns their number."""
    names = context.coordination.children(day) or ()
    for some in _pieces([Delete(f"{day}/{name}") for name in names[:most]]):
        context.coordination.apply([*some, *context.liveness_checks()])
    if len(names) <= most:
        context.coordination.delete(day)
    return len(names)


def _days(context: TableContext) -> set[int]:
    return {int(name) for name in context.coordination.children(context.tree.refused) or () if name.isdecimal()}


def _pieces(ops: Sequence[Op]) -> Iterator[Sequence[Op]]:
    for start in range(0, len(ops), _NODES_AT_ONCE):
        yield ops[start : start + _NODES_AT_ONCE]
