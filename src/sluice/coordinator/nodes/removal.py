"""The end of a table: one step closes it to everybody, many steps remove its nodes.

The first multi removes the node that every commit checks (`incarnation-<id>`), so nothing is ratified after it, and makes
two nodes: a mark in the tree, which every removal checks so that no tree made later in its place is touched, and a
*tombstone* outside the tree, which stays. The tombstone tells clients of the former table what happened. It also records the
table's last version: a client that was paused for long may still put a version into the log.

One client at a time deletes the data: the log files of two tables at one location have the same names, and a DELETE under way
cannot be taken back. It does so under an ephemeral node, and the location is free for another table when it says that it is
done. If it disappears without saying so (killed, or paused beyond its session), another client may finish the drop at once. A
second, persistent node then keeps the location from being used for as long as a request of the lost client may take effect.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import orjson

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..errors import CoordinatorUnavailable, SessionLost, table_dropped
from ..formats import NodeData, node_data
from ..limits import LONGEST_PUT_S
from ..service.store import (
    ANY_VERSION,
    ApplyRefused,
    BadVersion,
    Check,
    CoordinationStore,
    Create,
    Delete,
    Node,
    NoNode,
    Op,
    ReplyLost,
    Write,
    put,
)
from .context import TableContext
from .layout import DROPPED, TableTree
from .records import Head, NameRecord, Tombstone

_ATTEMPTS: Final = 20
_REMOVALS_AT_ONCE: Final = 100
_LETTING_GO_MAX: Final = 5
_PAUSE_S: Final = 0.5


@node_data("deleter")
class DeleterNode(NodeData):
    """Which process deletes a dropped table's data, and since when by its clock."""

    id: str
    host: str
    pid: int
    since_ms: int


def read_tombstone(context: TableContext) -> Tombstone | None:
    """The tombstone at a table's location; None if no table was dropped or forgotten there."""
    node = context.in_connection(lambda session: session.read(context.tree.tombstone))
    return None if node is None else Tombstone.decode(node.data)


def bury_tree(context: TableContext, head: Head, *, deleting: bool, forgotten: bool) -> None:
    """Close a table's tree for good, provided its head is this one, and remove it.

    With `forgotten` a tombstone is left; a table whose log goes on under other engines needs none. Raises Unavailable if the
    head changes meanwhile.
    """
    tree = context.tree
    grave = Tombstone(head.version, context.clock.now_ms(), deleting).encode()
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
            ops.append(put(tree.tombstone, grave, former))
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


def remove_closed_tree(context: TableContext, mark: str | None = None) -> None:
    """Remove the rest of a closed tree; nothing happens to any other tree. `mark` is the node that tells the tree of a table that moved."""
    tree, mark = context.tree, mark or context.tree.closed
    for _ in range(_ATTEMPTS):
        session = context.connect()
        session.barrier()
        if session.read(mark) is None:
            return
        try:
            paths = [path for path in below(session, tree.root) if path != mark]
            for start in range(0, len(paths), _REMOVALS_AT_ONCE):
                gone = [Delete(path) for path in paths[start : start + _REMOVALS_AT_ONCE]]
                # check: removals-are-of-the-closed-tree (without Check(mark, ANY_VERSION),)
                session.apply([Check(mark, ANY_VERSION), *gone])
            session.apply([Delete(mark), Delete(tree.root)])
        except (ApplyRefused, ReplyLost):  # another client removes it, too, or one created a last node
            continue
    raise Unavailable(f"the nodes of {tree.location} could not be removed: try again", location=tree.location)


def below(session: CoordinationStore, path: str) -> list[str]:
    """Every node below this one, children before their parents."""
    children = [f"{path}/{name}" for name in sorted(session.children(path) or ())]
    return [each for child in children for each in (*below(session, child), child)]


@dataclass(frozen=True, slots=True)
class Deletion:
    """One client's right to delete at a dropped table's location: its data, or a version that one of its clients put there later.

    The versions of the tombstone and of the persistent node (`left`) tell this claim from all others: each claim changes the latter, each
    drop and its end the former. `left` is 0 if no client before it disappeared without finishing.
    """

    context: TableContext
    identity: str
    grave: Node
    left: int

    def require(self) -> None:
        """Raise if the right was lost: TableDropped if the drop is done, Unavailable if the session has ended."""
        location = self.context.tree.location
        grave, deleter = self.context.in_connection(self._nodes)
        if grave is None or grave.version != self.grave.version:
            raise table_dropped(location)
        if deleter is None or DeleterNode.decode(deleter.data).id != self.identity:
            raise Unavailable(f"the claim to delete the data of {location} is gone: repeat the drop", location=location)

    def done(self) -> None:
        """Record that the data are deleted. Raises what `require` does."""
        content = replace(Tombstone.decode(self.grave.data), deleting=False).encode()
        for _ in range(_ATTEMPTS):
            self.require()
            try:
                self.context.connect().apply([Write(self.grave.path, content, self.grave.version), *self._gone()])
                return
            except ReplyLost:
                grave, _ = self.context.in_connection(self._nodes)
                if grave is not None and (grave.version, grave.data) == (self.grave.version + 1, content):
                    return
            except (ApplyRefused, SessionLost):
                continue
        raise Unavailable(f"the coordinator did not record that {self.context.tree.location} is dropped: try again")

    def _nodes(self, session: CoordinationStore) -> list[Node | None]:
        """The tombstone and the deleter's node, as of now."""
        session.barrier()
        return session.read_many([self.grave.path, self.context.tree.deleter])

    def let_go(self) -> None:
        """Give the right back, done or not, despite lost replies: nobody else can claim it while this process lives."""
        for _ in range(_LETTING_GO_MAX):
            try:
                with suppress(ApplyRefused, SessionLost):  # the claim is gone
                    self.context.connect().apply([Check(self.grave.path, self.grave.version), *self._gone()])
                return
            except (ReplyLost, CoordinatorUnavailable):
                self.context.clock.sleep(_PAUSE_S)

    def _gone(self) -> list[Op]:
        tree = self.context.tree
        left: Op = Check(tree.deleter_left, self.left) if self.left else Delete(tree.deleter_left, self.left)
        return [left, Delete(tree.deleter)]


@contextmanager
def deletion(context: TableContext, tombstone: Tombstone) -> Iterator[Deletion]:
    """Hold the only right to delete for this very drop, as its tombstone identifies it.

    Raises TableDropped if that tombstone is gone (another table may exist), Unavailable while another client deletes.
    """
    held = _claim(context, tombstone)
    try:
        yield held
    finally:
        held.let_go()


def _claim(context: TableContext, tombstone: Tombstone) -> Deletion:
    tree, identity = context.tree, uuid.uuid4().hex
    for _ in range(_ATTEMPTS):
        session = context.connect()
        session.barrier()
        grave, deleter, left = session.read_many([tree.tombstone, tree.deleter, tree.deleter_left])
        # check: a-drop-deletes-its-own-table (without or Tombstone.decode(grave.data) != tombstone)
        if grave is None or Tombstone.decode(grave.data) != tombstone:
            raise table_dropped(context.tree.location)
        if deleter is not None and left is not None and DeleterNode.decode(deleter.data).id == identity:  # our claim, whose reply was lost
            return Deletion(context, identity, grave, left.version)
        if deleter is not None:
            raise _taken(context, deleter)
        body = DeleterNode(identity, socket.gethostname(), os.getpid(), context.clock.now_ms()).encode()
        with suppress(ApplyRefused, ReplyLost):
            trace = put(tree.deleter_left, body, left)
            session.apply([Check(tree.tombstone, grave.version), trace, Create(tree.deleter, body, ephemeral=True)])
            return Deletion(context, identity, grave, 0 if left is None else left.version + 1)
    raise Unavailable(f"the data of {tree.location} could not be claimed for deletion: repeat the drop", location=tree.location)


def _taken(context: TableContext, deleter: Node) -> Unavailable:
    claim, location = DeleterNode.decode(deleter.data), context.tree.location
    return Unavailable(
        f"the table at {location} was dropped, and its data are being deleted by process {claim.pid} on {claim.host}: wait until it "
        "is done, or end it, and repeat this when its session has expired",
        location=location,
        host=claim.host,
        pid=claim.pid,
    )


def require_no_deleter(context: TableContext) -> None:
    """Raise Unavailable while a client deletes at this location, or one that disappeared may still do so."""
    tree = context.tree
    deleter, left = context.in_connection(lambda session: session.read_many([tree.deleter, tree.deleter_left]))
    if deleter is not None:
        raise _taken(context, deleter)
    if left is None:
        return
    wait_s = DeleterNode.decode(left.data).since_ms / 1000 + LONGEST_PUT_S - context.clock.now_ms() / 1000
    if wait_s > 0:
        raise Unavailable(
            f"the table at {tree.location} was dropped, and a client that deleted its data disappeared before it was done (killed, or "
            f"paused): it may delete log files of a new table. Try again in {wait_s:.0f} s, or use another location",
            location=tree.location,
            wait_s=wait_s,
        )
    with suppress(NoNode, BadVersion, ReplyLost):  # another client removed it, or claims the deletion
        context.connect().delete(left.path, version=left.version)
