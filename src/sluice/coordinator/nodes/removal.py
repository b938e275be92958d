"""Letting go of a table: its nodes are closed to everybody in one step, then removed in many.

The first multi takes away the node that every commit checks (`incarnation-<id>`), so that nothing is ratified after it, and makes two
others: a mark in the tree, to which all removals are held, so that they never touch a tree that was made in its place, and a
*tombstone* outside of it, which stays. The tombstone tells clients of the former table what happened, and says how far the former
table's versions went: a client that was paused for long may still put one of them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import orjson

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, Node, Op, ReplyLost, Write
from .context import TableContext
from .layout import DROPPED
from .records import Head

__all__ = ["Tombstone", "bury_tree", "read_tombstone", "remove_closed_tree"]

_ATTEMPTS: Final = 20
_REMOVALS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a table: its last version, when it was let go (ms since the epoch), and whether data are still to be deleted."""

    last: int
    at_ms: int
    deleting: bool = False


def read_tombstone(context: TableContext) -> Tombstone | None:
    """The tombstone at a table's location; None where no table was dropped or forgotten."""
    node = context.in_connection(lambda session: session.read(context.tree.tombstone))
    return None if node is None else Tombstone(**orjson.loads(node.data))


def bury_tree(context: TableContext, head: Head, *, deleting: bool, forgotten: bool) -> None:
    """Close a table's tree for good, as long as its head is this one, and remove it.

    With `forgotten` a tombstone is left; a table whose log goes on under other engines needs none. Raises Unavailable when somebody
    changes the head meanwhile.
    """
    tree = context.tree
    grave = orjson.dumps(asdict(Tombstone(head.version, context.clock.now_ms(), deleting)))
    for _ in range(_ATTEMPTS):
        session = context.connect()
        session.barrier()
        root, node, mark, former = session.read_many([tree.root, tree.head, tree.closed, tree.tombstone])
        if root is None or mark is not None:  # it is done, by this call or another one
            remove_closed_tree(context)
            return
        if node is None or Head.decode(node.data) != head:
            break
        told = orjson.loads(root.data)
        ops: list[Op] = [
            Check(tree.head, node.version),
            Delete(tree.incarnation(told["incarnation"])),
            Create(tree.closed),
            Write(tree.root, orjson.dumps({**told, "closed": True}), root.version),
        ]
        if forgotten:
            session.ensure_path(DROPPED)
            ops.append(_tombstone(tree.tombstone, grave, former))
        try:
            session.apply(ops)
        except (ApplyRefused, ReplyLost):
            continue
    raise Unavailable(f"somebody changes {tree.location} while it is dropped: repeat it", location=tree.location)


def _tombstone(path: str, data: bytes, former: Node | None) -> Op:
    return Create(path, data) if former is None else Write(path, data, former.version)


def remove_closed_tree(context: TableContext) -> None:
    """Remove what is left of a tree that was closed; nothing happens to any other."""
    tree = context.tree
    for _ in range(_ATTEMPTS):
        session = context.connect()
        session.barrier()
        if session.read(tree.closed) is None:
            return
        try:
            _remove_below(session, tree.root, tree.closed)
            session.apply([Delete(tree.closed), Delete(tree.root)])
        except (ApplyRefused, ReplyLost):  # somebody else removes it too, or a client came with a last node
            continue
    raise Unavailable(f"the nodes of {tree.location} could not be removed: repeat it", location=tree.location)


def _remove_below(session: CoordinationStore, path: str, mark: str) -> None:
    """Remove every node below this one but the mark, as long as the mark is there."""
    paths = [f"{path}/{name}" for name in sorted(session.children(path) or ()) if f"{path}/{name}" != mark]
    for each in paths:
        _remove_below(session, each, mark)
    for start in range(0, len(paths), _REMOVALS_AT_ONCE):
        gone = [Delete(each) for each in paths[start : start + _REMOVALS_AT_ONCE]]
        session.apply([Check(mark, ANY_VERSION), *gone])
