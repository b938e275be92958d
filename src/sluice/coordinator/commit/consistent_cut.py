"""Versions of several tables at one moment, determined by ZooKeeper's order of all changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...storage.errors import NotATable
from ..errors import CoordinatorUnavailable, SessionLost, table_dropped
from ..nodes.context import TableContext
from ..nodes.layout import VerdictName, newest_first
from ..nodes.records import BatchRecord, Head
from ..service.clock import Deadline
from ..service.store import CoordinationStore, Node

_PAUSE_S: Final = 0.001


def versions_together(contexts: Sequence[TableContext], deadline: Deadline) -> list[int]:
    """The versions of one coordinator's tables as of one moment, with everything acknowledged before this call.

    Concurrent commits do not disturb it. Raises NotATable, TableDropped, CoordinatorUnavailable, SessionLost.
    """
    first = contexts[0]
    while True:
        versions: list[int] | None = None
        try:
            first.coordination.barrier()
            versions = _versions_together(first.coordination, contexts)
        except SessionLost:  # a read depends on no particular session
            if deadline.over:
                raise
        if versions is not None:
            return versions
        if deadline.over:
            raise CoordinatorUnavailable(f"verdict records of {len(contexts)} tables were removed while they were read; try again")
        first.clock.sleep(min(_PAUSE_S, deadline.left_s))


def _versions_together(session: CoordinationStore, contexts: Sequence[TableContext]) -> list[int] | None:
    """One try of `versions_together`; None if this client slept so long that records it needs were pruned.

    A record is made in the multi that moves the head, so its zxid is the moment of its versions. The chosen moment is the
    newest of the heads read. The records are listed after all heads, by the same session: so each list has everything up to
    that moment, and in each table the last record made by then names its version.
    """
    nodes, listed = session.look([context.tree.head for context in contexts], [context.tree.verdicts for context in contexts])
    heads: list[Head] = []
    histories: list[list[VerdictName]] = []
    for context, node, names in zip(contexts, nodes, listed, strict=True):
        if node is None:
            if session.read(context.tree.tombstone) is not None:
                raise table_dropped(context.tree.location)
            raise NotATable(f"the coordinator knows no table at {context.tree.location}", location=context.tree.location)
        heads.append(Head.decode(node.data))
        history = _since(heads[-1], names or ())
        if history is None:
            return None
        histories.append(history)
    paths = [context.tree.verdict(name) for context, history in zip(contexts, histories, strict=True) for name in history]
    made = {node.path: node.created_zxid for node in session.read_many(paths) if node is not None}
    if len(made) < len(paths):
        return None
    times = [[made[context.tree.verdict(name)] for name in history] for context, history in zip(contexts, histories, strict=True)]
    moment = max((zxids[0] for zxids in times if zxids), default=0)
    versions: list[int] = []
    for head, history, zxids in zip(heads, histories, times, strict=True):
        # check: one-moment-of-several-heads (without if zxid <= moment)
        stood = [name.version for name, zxid in zip(history, zxids, strict=True) if zxid <= moment]
        versions.append(stood[-1] if stood else head.version)
    return versions


def _since(head: Head, names: Sequence[str]) -> list[VerdictName] | None:
    """The record that was made with the head, and those after it, in order; empty for a head made without a record.

    None if the head's own record is gone: the oldest are removed first, so some of those after it may be gone, too.
    """
    position = (head.generation, head.slot, head.version)
    records = newest_first(names)[::-1]
    after = [name for name in records if (name.generation, name.slot, name.version) > position]
    before = records[: len(records) - len(after)]
    if not before:
        return None if after else []
    return [before[-1], *after]


def version_beside(gone_on: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    """The version of `other` while each of the tables that have changed since had its version; None if it is not known any more.

    A verdict record is made in the multi that ratifies, so its zxid is the moment of its versions. Only adjacent commits
    show the moment between them: records are pruned, and those of refusals later than others.
    """
    try:
        return _version_beside(gone_on, other)
    except SessionLost:  # a read depends on no particular session
        return _version_beside(gone_on, other)


def _version_beside(gone_on: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    ends: list[int] = []
    for context, version in gone_on:
        after = min((name for name in _records(context) if name.version > version), default=None)
        node = None if after is None else context.coordination.read(context.tree.verdict(after))
        # check: a-moment-that-is-known (without or _first_version(node) != version + 1)
        if node is None or _first_version(node) != version + 1:
            return None
        ends.append(node.created_zxid)
    state = other.read_head()
    if state is None or not ends:
        return None
    following: int | None = None
    for name in _records(other):
        node = other.coordination.read(other.tree.verdict(name))
        if node is None:
            continue
        # check: a-moment-before-all-ends (< min(ends) -> <= max(ends))
        if node.created_zxid < min(ends):
            is_next = name.version >= state[0].version if following is None else name.version + 1 == following
            return name.version if is_next else None
        following = _first_version(node) or following
    return None


def _first_version(record: Node) -> int | None:
    """The first version of a batch; None if all of it was refused, or only read."""
    return min((plan.version for plan in BatchRecord.decode(record.data).versions), default=None)


def _records(context: TableContext) -> list[VerdictName]:
    """The names of a table's records, latest first."""
    return newest_first(context.coordination.children(context.tree.verdicts) or ())
