"""Versions of several tables that stood at one moment: ZooKeeper's order of all changes says which did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..storage.errors import NotATable
from .clock import Deadline
from .context import TableContext
from .errors import CoordinatorUnavailable, SessionLost
from .layout import VerdictName
from .records import Head
from .store import ApplyRefused, Check, ReplyLost

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


def version_beside(known: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    """The version `other` had at a moment at which each known table had its version; None when the records do not tell (any more).

    A verdict record is made in the multi that ratifies, so the zxid that made it is the moment of its versions.
    """
    try:
        return _version_beside(known, other)
    except SessionLost:  # what is read here hangs on no session
        return _version_beside(known, other)


def _version_beside(known: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    ends = [end for context, version in known if (end := _end_of(context, version)) is not None]
    state = other.read_head()
    if not ends or state is None:
        return None
    for name in sorted(_records(other), reverse=True):
        node = other.coordination.read(other.tree.verdict(name))
        if node is not None and node.created_zxid < min(ends):
            return name.version
    return None


def _end_of(context: TableContext, version: int) -> int | None:
    """The zxid at which a table went on from a version; None when it did not, or when that is forgotten."""
    after = min((name for name in _records(context) if name.version > version), default=None)
    node = None if after is None else context.coordination.read(context.tree.verdict(after))
    return None if node is None else node.created_zxid


def _records(context: TableContext) -> list[VerdictName]:
    names = map(VerdictName.parse, context.coordination.children(context.tree.verdicts) or ())
    return [name for name in names if name is not None]
