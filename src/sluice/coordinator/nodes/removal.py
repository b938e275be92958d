"""Removing a table's tree: one step closes it to everybody, many steps remove its nodes.

The first multi removes the node that every commit checks (`incarnation-<id>`), so nothing is ratified after it, and makes
two nodes: a mark in the tree, which every removal checks so that no tree made later in its place is touched, and a
*tombstone* outside the tree, which stays. The tombstone tells clients of the former table what happened. It also records the
table's last version: a client that was paused for long may still put a version into the log.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import orjson

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, Node, Op, ReplyLost, Write
from .catalog_records import NameRecord
from .context import TableContext
from .layout import DROPPED, TableTree
from .records import Head

__all__ = ["Tombstone", "bury_tree", "name_removal", "read_tombstone", "remove_closed_tree"]

_ATTEMPTS: Final = 20
_REMOVALS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record of a removed table: its last version, when it was removed (ms since the epoch), and whether data remain to delete."""

    last: int
    at_ms: int
    deleting: bool = False


def read_tombstone(context: TableContext) -> Tombstone | None:
    """The tombstone at a table's location; None if no table was dropped or forgotten there."""
    node = context.in_connection(lambda session: session.read(context.tree.tombstone))
    return None if node is None else Tombstone(**orjson.loads(node.data))


def bury_tree(context: TableContext, head: Head, *, deleting: bool, forgotten: bool) -> None:
    """Close a table's tree for good, provided its head is this one, and remove it.

    With `forgotten` a tombstone is left; a table whose log goes on under other engines needs none. Raises Unavailable if the
    head changes meanwhile.
    """
    tree = context.tree
    grave = orjson.dumps(asdict(Tombstone(head.version, context.clock.now_ms(), deleting)))
    for _ in range(_ATTEMPTS):
        session = context.connect()
        session.barrier()
        root, node, mark, former, name = session.read_many([tree.root, tree.head, tree.closed, tree.tombstone, tree.name])
        if root is None or mark is not None:  # done, by this call or another one
            remove_closed_tree(context)
            return
        if node is None or Head.decode(node.data) != head:
            break
        content = orjson.loads(root.data)
        ops: list[Op] = [
            Check(tree.head, node.version),
            # check: a-dropped-tree-is-closed-at-once
            Delete(tree.incarnation(content["incarnation"])),
            Create(tree.closed),
            # check: a-dropped-tree-is-closed-at-once
            Write(tree.root, orjson.dumps({**content, "closed": True}), root.version),
            # check: names-go-with-their-tables
            *name_removal(session, tree, name),
        ]
        if forgotten:
            session.ensure_path(DROPPED)
            ops.append(_tombstone(tree.tombstone, grave, former))
        try:
            session.apply(ops)
        except (ApplyRefused, ReplyLost):
            continue
    raise Unavailable(f"another client changes {tree.location} while it is dropped: try again", location=tree.location)


def name_removal(session: CoordinationStore, tree: TableTree, back: Node | None) -> list[Op]:
    """What takes a table's name away, for one multi; `back` is the table's node that leads to it. Empty if it has no name."""
    if back is None:
        return []
    node = session.read(back.data.decode())
    ours = node is not None and NameRecord.decode(node.data).location == tree.location
    return [Check(back.path, back.version), *([Delete(node.path, node.version)] if ours and node is not None else [])]


def _tombstone(path: str, data: bytes, former: Node | None) -> Op:
    return Create(path, data) if former is None else Write(path, data, former.version)


def remove_closed_tree(context: TableContext) -> None:
    """Remove the rest of a closed tree; nothing happens to any other tree."""
    tree = context.tree
    for _ in range(_ATTEMPTS):
        session = context.connect()
        session.barrier()
        if session.read(tree.closed) is None:
            return
        try:
            _remove_below(session, tree.root, tree.closed)
            session.apply([Delete(tree.closed), Delete(tree.root)])
        except (ApplyRefused, ReplyLost):  # another client removes it, too, or one created a last node
            continue
    raise Unavailable(f"the nodes of {tree.location} could not be removed: try again", location=tree.location)


def _remove_below(session: CoordinationStore, path: str, mark: str) -> None:
    """Remove every node below this one except the mark, as long as the mark exists."""
    paths = [f"{path}/{name}" for name in sorted(session.children(path) or ()) if f"{path}/{name}" != mark]
    for each in paths:
        _remove_below(session, each, mark)
    for start in range(0, len(paths), _REMOVALS_AT_ONCE):
        gone = [Delete(each) for each in paths[start : start + _REMOVALS_AT_ONCE]]
        # check: removals-are-of-the-closed-tree (without Check(mark, ANY_VERSION),)
        session.apply([Check(mark, ANY_VERSION), *gone])
