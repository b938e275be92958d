"""Verdict records go once there are enough later ones; what no version of the log tells is put away (I10).

Whoever commits and publishes lists the records, so few of them stay. A refusal has to be told for days: it is put away by its
transaction's GUID under the day of that, where two requests find it however many there are, and where days go as a whole.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .context import TableContext
from .layout import VerdictName
from .records import BatchRecord, MalformedRecord
from .store import ApplyRefused, Create, Delete, NodeExists, NoNode, NotEmpty, Op, ReplyLost, Write

__all__ = ["find_put_away", "prune"]

_log = logging.getLogger(__name__)
_DAY_MS = 24 * 3600 * 1000
_NODES_AT_ONCE = 64
_FORGOTTEN_AT_ONCE = 1024
"""Refusals that one call removes: whoever prunes is about to commit."""


def prune(context: TableContext) -> None:
    """Drop the verdict records that nobody needs to commit, and the refusals that were put away long ago.

    Never a record that is not published yet, of which there may be any number: what only reads the table needs no room to be ratified.
    """
    tree, limits = context.tree, context.limits
    state = context.read_published()
    if state is None:
        return
    reached = (state[0].generation, state[0].slot, state[0].version)
    names = sorted(filter(None, map(VerdictName.parse, context.coordination.children(tree.verdicts) or ())))
    today = context.clock.now_ms() // _DAY_MS
    old = [name for name in names[: -limits.verdicts_kept] if (name.generation, name.slot, name.version) <= reached]
    days = _days(context)
    if today not in days and any(name.refusals for name in old):
        _make_day(context, today)
    in_order = True  # the refusals of a transaction stay in their order: none is put away before an earlier one
    for name in old:
        if not name.refusals:
            _drop(context, tree.verdict(name))
        elif in_order:
            in_order = _put_away(context, name, today)
    first_kept = today - math.ceil(limits.refusals_kept_s * 1000 / _DAY_MS)
    _forget(context, [day for day in sorted(days) if day < first_kept])


def find_put_away(context: TableContext, transaction_id: str) -> BatchRecord | None:
    """The verdict on a transaction that was put away, alone in a record; the latest where there are several, None without one."""
    paths = [context.tree.refusal(day, transaction_id) for day in sorted(_days(context), reverse=True)]
    node = next(filter(None, context.coordination.read_many(paths)), None)
    return None if node is None else BatchRecord.decode(node.data)


def _put_away(context: TableContext, name: VerdictName, today: int) -> bool:
    """Put away what a batch's record tells and no version does, and drop it; whether it is so now: another client may be at it."""
    path = context.tree.verdict(name)
    node = context.coordination.read(path)
    if node is None:
        return True
    try:
        record = BatchRecord.decode(node.data)
    except MalformedRecord as error:  # nobody is told anything by it
        _log.warning("%s is dropped: %s", path, error)
        _drop(context, path)
        return True
    kept = {
        context.tree.refusal(today, verdict.transaction_id): replace(record, verdicts=(verdict,), versions=(), direct="").encode()
        for verdict in record.verdicts
        if verdict.refusal is not None or verdict.repeats
    }
    there = context.coordination.read_many(list(kept))
    ops: list[Op] = [
        Create(at, data) if known is None else Write(at, data, known.version) for (at, data), known in zip(kept.items(), there, strict=True)
    ]
    try:
        for some in _pieces([*ops, Delete(path, node.version)]):
            context.coordination.apply([*some, *context.standing()])
    except ApplyRefused as refused:
        context.recognise_again(getattr(refused.cause, "path", ""))
        return False
    except ReplyLost as error:
        _log.debug("%s was not put away here: %s", path, error)
        return False
    return True


def _make_day(context: TableContext, day: int) -> None:
    try:
        context.coordination.create(context.tree.refused_on(day))
    except (NodeExists, NoNode, ReplyLost) as error:  # where it is not there then, nothing is put away
        _log.debug("day %d was not made here: %s", day, error)


def _forget(context: TableContext, days: Sequence[int]) -> None:
    """Remove what was put away on these days."""
    left = _FORGOTTEN_AT_ONCE
    for day in days:
        parent = context.tree.refused_on(day)
        names = context.coordination.children(parent) or ()
        try:
            for some in _pieces([Delete(f"{parent}/{name}") for name in names[:left]]):
                context.coordination.apply([*some, *context.standing()])
        except (ApplyRefused, ReplyLost) as error:
            _log.debug("%s is left to another client: %s", parent, error)
            return
        left -= len(names)
        if left < 0:
            return  # the rest goes next time
        _drop(context, parent)


def _drop(context: TableContext, path: str) -> None:
    try:
        context.coordination.delete(path)
    except (NoNode, NotEmpty, ReplyLost) as error:
        _log.debug("%s was not pruned here: %s", path, error)


def _days(context: TableContext) -> set[int]:
    return {int(name) for name in context.coordination.children(context.tree.refused) or () if name.isdecimal()}


def _pieces(ops: Sequence[Op]) -> Iterator[Sequence[Op]]:
    for start in range(0, len(ops), _NODES_AT_ONCE):
        yield ops[start : start + _NODES_AT_ONCE]
