"""Versions of several tables that stood at one moment: ZooKeeper's order of all changes says which did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..storage.errors import NotATable
from .clock import Deadline
from .context import TableContext
from .errors import CoordinatorUnavailable, SessionLost
from .layout import VerdictName
from .records import BatchRecord, Head
from .store import ApplyRefused, Check, Node, ReplyLost

__all__ = ["heads_together", "version_beside"]

_PAUSE_S: Final = 0.001


def heads_together(contexts: Sequence[TableContext], deadline: Deadline) -> list[Head]:
    """The decided states of tables of one coordinator as of one moment of this call.

    They are read, and one multi of checks then proves that all of them stood together; when something was committed in between it is
    done again. So nothing that was acknowledged before the call is missing. Raises NotATable, CoordinatorUnavailable.
    """
    first = contexts[0]
    while True:
        checks: list[Check] = []
        heads: list[Head] = []
        try:
            nodes = first.coordination.read_many([context.tree.head for context in contexts])
            for context, node in zip(contexts, nodes, strict=True):
                if node is None:
                    raise NotATable(f"the coordinator knows no table at {context.tree.location}", location=context.tree.location)
                checks.append(Check(node.path, node.version))
                heads.append(Head.decode(node.data))
            first.coordination.apply(checks)
        except (ApplyRefused, ReplyLost, SessionLost) as moved:  # checks change nothing, and hang on no session: they may be sent again
            if deadline.over:
                if isinstance(moved, SessionLost):
                    raise
                raise CoordinatorUnavailable(
                    f"no moment was found at which {len(contexts)} tables stood still for two round trips ({moved}); try again"
                ) from moved
            first.clock.sleep(min(_PAUSE_S, deadline.left_s))
        else:
            return heads


def version_beside(gone_on: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    """The version `other` had when each of the tables that have gone on since had its version; None when that is not known any more.

    A verdict record is made in the multi that ratifies, so the zxid that made it is the moment of its versions. Only commits next to
    each other tell the moment between them: records are pruned, and those of refusals later than others.
    """
    try:
        return _version_beside(gone_on, other)
    except SessionLost:  # what is read here hangs on no session
        return _version_beside(gone_on, other)


def _version_beside(gone_on: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    ends = [_end_of(context, version) for context, version in gone_on]
    known = [end for end in ends if end is not None]
    state = other.read_head()
    if state is None or not ends or len(known) < len(ends):
        return None
    following: int | None = None
    for name in sorted(_records(other), reverse=True):
        node = other.coordination.read(other.tree.verdict(name))
        if node is None:
            continue
        if node.created_zxid < min(known):
            is_next = name.version >= state[0].version if following is None else name.version + 1 == following
            return name.version if is_next else None
        following = _first_version(node) or following
    return None


def _end_of(context: TableContext, version: int) -> int | None:
    """The zxid at which a table went on from a version; None when that is forgotten."""
    after = min((name for name in _records(context) if name.version > version), default=None)
    node = None if after is None else context.coordination.read(context.tree.verdict(after))
    return None if node is None or _first_version(node) != version + 1 else node.created_zxid


def _first_version(record: Node) -> int | None:
    """The first version of a batch; None when all of it was refused, or only read."""
    return min((plan.version for plan in BatchRecord.decode(record.data).versions), default=None)


def _records(context: TableContext) -> list[VerdictName]:
    names = map(VerdictName.parse, context.coordination.children(context.tree.verdicts) or ())
    return [name for name in names if name is not None]
