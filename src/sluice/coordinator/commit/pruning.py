"""Verdict records go once there are enough later ones; what no version of the log tells is put away (I10).

Both happen in the multi that raises `published`. Only raises take records away, and each compares `published` with what its
client read before it listed the records, so nobody finds that another took them first. A refusal has to be told for days: it is
put away by its transaction's GUID under the day of that, where two requests find it however many there are, and where days go as
a whole.
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
from ..service.requests import request_bytes
from ..service.store import Create, Delete, Op, Write

__all__ = ["FORGET_EVERY", "find_put_away", "fitting", "forget", "put_away", "spare"]

FORGET_EVERY: Final = 64
"""How many times `published` is raised between two looks for refusals that are old enough to go."""

_log = logging.getLogger(__name__)
_DAY_MS: Final = 24 * 3600 * 1000
_RECORDS_AT_ONCE: Final = 8
"""Records that one raise takes away. It adds one, so that what was left once is made up for."""
_NODES_AT_ONCE: Final = 64
_BYTES_AT_ONCE: Final = 600_000
"""What one raise sends: ZooKeeper takes 1 MB, access lists and all. The paths of a table with a long name fill that with a few hundred."""
_FORGOTTEN_AT_ONCE: Final = 32_768
"""Refusals that one call forgets: as many as the largest batches can add in the meantime."""


def spare(names: Sequence[str], published: Published, kept: int) -> list[VerdictName]:
    """The oldest of these records, a few of them, as far as they are published and not among the last `kept`.

    Any number may be unpublished: what only reads the table needs no room to be ratified.
    """
    reached = (published.generation, published.slot, published.version)
    oldest = sorted(names)[: max(0, len(names) - kept)][:_RECORDS_AT_ONCE]  # numbers have leading zeros
    found = filter(None, map(VerdictName.parse, oldest))
    return [name for name in found if (name.generation, name.slot, name.version) <= reached]


def put_away(context: TableContext, record: BatchRecord) -> list[Op]:
    """What keeps the verdicts of a batch that no version tells; most batches have none. All that is too much for one multi is done here.

    Doing it twice changes nothing.
    """
    told = {v.transaction_id: v for v in record.verdicts if v.refusal is not None or v.repeats}
    if not told:
        return []
    tree, today = context.tree, context.clock.now_ms() // _DAY_MS
    alone = {
        tree.refusal(today, transaction_id): replace(record, verdicts=(verdict,), versions=(), direct="").encode()
        for transaction_id, verdict in told.items()
    }
    parents = [tree.refused, tree.refused_on(today)]
    all_days, day, *there = context.coordination.read_many([*parents, *alone])
    # Somebody may have removed the former by hand: without it nothing would ever be published again.
    ops: list[Op] = [Create(path) for path, known in zip(parents, (all_days, day), strict=True) if known is None]
    ops += [
        Create(path, data) if known is None else Write(path, data, known.version)
        for (path, data), known in zip(alone.items(), there, strict=True)
    ]
    *whole, last = _pieces(ops)
    for some in whole:
        context.coordination.apply([*some, *context.standing()])
    return list(last)


def fitting(first: Sequence[Op], rest: Sequence[Op]) -> tuple[Sequence[Op], Sequence[Op]]:
    """Those of the `rest` that fit into one multi with the `first`, and those that do not."""
    sizes = accumulate((request_bytes([op]) for op in rest), initial=request_bytes(first))
    count = max(0, sum(size <= _BYTES_AT_ONCE for size in sizes) - 1)
    return rest[:count], rest[count:]


def find_put_away(context: TableContext, transaction_id: str) -> BatchRecord | None:
    """The verdict on a transaction that was put away, alone in a record; the latest where there are several, None without one."""
    paths = [context.tree.refusal(day, transaction_id) for day in sorted(_days(context), reverse=True)]
    node = next(filter(None, context.coordination.read_many(paths)), None)
    return None if node is None else BatchRecord.decode(node.data)


def forget(context: TableContext) -> None:
    """Remove the refusals that were put away long ago, off the path of who commits; what goes wrong is left to the next time."""
    first_kept = context.clock.now_ms() // _DAY_MS - math.ceil(context.limits.refusals_kept_s * 1000 / _DAY_MS)
    left = _FORGOTTEN_AT_ONCE
    try:
        for day in sorted(_days(context)):
            if day < first_kept and left > 0:
                left -= _forget(context, context.tree.refused_on(day), left)
    except SluiceError as trouble:
        _log.debug("old refusals of %s are left to another client: %s", context.tree.location, trouble)


def _forget(context: TableContext, day: str, most: int) -> int:
    """Remove so many of the refusals of a day, and with the last of them the day; how many they were."""
    names = context.coordination.children(day) or ()
    for some in _pieces([Delete(f"{day}/{name}") for name in names[:most]]):
        context.coordination.apply([*some, *context.standing()])
    if len(names) <= most:
        context.coordination.delete(day)
    return len(names)


def _days(context: TableContext) -> set[int]:
    return {int(name) for name in context.coordination.children(context.tree.refused) or () if name.isdecimal()}


def _pieces(ops: Sequence[Op]) -> Iterator[Sequence[Op]]:
    for start in range(0, len(ops), _NODES_AT_ONCE):
        yield ops[start : start + _NODES_AT_ONCE]
